"""Validates a bill of materials against the schema of CycloneDX 1.5, its formats included.

usage: materials.py FILE
"""

import sys

from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        error = JsonStrictValidator(SchemaVersion.V1_5).validate_str(file.read())
    if error is not None:
        sys.exit(f"{sys.argv[1]} is no valid bill of materials: {error.data.json_path}: {error.data.message}")
    print(f"{sys.argv[1]} is a valid CycloneDX 1.5 document")


if __name__ == "__main__":
    main()
