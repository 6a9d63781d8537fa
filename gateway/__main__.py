"""`python -m gateway`: the command `webmcp-gateway`, where its script is not in the PATH."""

from gateway.cli import main

if __name__ == "__main__":
    main()
