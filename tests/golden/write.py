"""Text snapshots: the command `python -m tests.golden.write` writes all of them anew, or those that it is given."""

import sys

from tests.golden.texts import SNAPSHOTS, path_of


def main() -> None:
    """The command writes every snapshot that is another one by now."""
    for name in sys.argv[1:] or SNAPSHOTS:
        path, text = path_of(name), SNAPSHOTS[name]()
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
            print(f"{name} is written")


if __name__ == "__main__":
    main()
