"""The evaluation of Fed-TDA: classifiers trained by silos on their own rows and on synthetic ones."""
