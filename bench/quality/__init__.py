"""Tables judged by a third party's score, before and after their columns got a shape of their own."""
