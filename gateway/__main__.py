"""`python -m gateway`: the command `webmcp-gateway` when its script is not on the PATH."""

from gateway.cli import main

if __name__ == "__main__":
    main()
