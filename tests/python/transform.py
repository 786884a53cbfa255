"""Prints a SAM template as the CloudFormation template that AWS would make of it, with the parameters' defaults.

usage: transform.py TEMPLATE [NAME=VALUE ...]
"""

import json
import sys

from samtranslator.parser.parser import Parser
from samtranslator.translator.translator import Translator
from samtranslator.yaml_helper import yaml_parse


def main() -> None:
    with open(sys.argv[1], encoding="utf-8") as file:
        template = yaml_parse(file)
    values = {
        name: parameter["Default"]
        for name, parameter in template.get("Parameters", {}).items()
        if "Default" in parameter
    }
    values.update(argument.split("=", 1) for argument in sys.argv[2:])
    # What `sam build` leaves behind in place of folders.
    for resource in template["Resources"].values():
        if resource["Type"] == "AWS::Serverless::Function":
            resource["Properties"]["CodeUri"] = "s3://bucket/key"
    translator = Translator(managed_policy_map={}, sam_parser=Parser())
    json.dump(translator.translate(template, parameter_values=values), sys.stdout, indent=1)


if __name__ == "__main__":
    main()
