"""``python -m tvm_sramtile``: the command line."""

from tvm_sramtile.cli import main

if __name__ == "__main__":
    main()
