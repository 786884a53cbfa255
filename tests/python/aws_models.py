"""Passes recorded requests through AWS's own models of its services, as botocore carries them.

usage: aws_models.py RECORDED [GOLDEN]

RECORDED has one request a line, as JSON: label, service, method, uri, target, body, and perhaps the answer. Each is parsed by its service's model (moto's
parsers), validated (types, required members, enumerations, bounds) and serialised again by botocore: the fields must be the same, or the
model does not know one of them. An answer must consist of elements that the model knows, with values of their types. GOLDEN is a folder of golden launches: the launches whose labels are `NAME ATTEMPT` are compared with
them, field by field, after both are serialised by botocore. Findings are printed one a line; their number decides the exit status.
"""

import base64
import email
import json
import pathlib
import re
import sys
import urllib.parse
from xml.etree import ElementTree

import botocore.loaders
import botocore.serialize
import botocore.utils
import botocore.validate
import yaml
from moto.core import parse
from moto.core.model import ServiceModel

try:
    import tomllib
except ModuleNotFoundError:
    import tomli as tomllib

PARSERS = {"ec2": parse.EC2QueryParser, "query": parse.QueryParser, "json": parse.JSONParser, "rest-json": parse.RestJSONParser}
# Tags by which a launch finds its machines again; Karpenter has no such tags.
OWN_TAGS = {"whittle.dev/launch", "karpenter.sh/nodeclaim"}
# New types appear every week, in no model; these look like one.
INSTANCE_TYPE = re.compile(r"[a-z0-9-]+\.[a-z0-9-]+")
# Enumerations that AWS extends before its models follow.
NEWER = {"InstanceType", "SupportedAdditionalProcessorFeature"}
# Prices are whole billionths of a dollar.
TOLERANCE = 1.5e-9


class Refused(Exception):
    """What a model says against a request."""


class Service:
    """A service's model, with its operations by their names on the wire."""

    known: dict = {}

    def __init__(self, name: str):
        self.model = ServiceModel(botocore.loaders.Loader().load_service_model(name, "service-2"), name)
        self.protocol = self.model.protocol
        self.serializer = botocore.serialize.create_serializer(self.protocol, include_validation=True)

    @classmethod
    def named(cls, name: str) -> "Service":
        if name not in cls.known:
            cls.known[name] = cls(name)
        return cls.known[name]

    def operation(self, sent: dict):
        path = urllib.parse.urlsplit(sent["uri"]).path
        if self.protocol == "rest-json":
            for name in self.model.operation_names:
                operation = self.model.operation_model(name)
                if operation.http["method"] == sent["method"] and matched(operation.http["requestUri"], path) is not None:
                    return operation
            raise Refused(f"no operation has the path {sent['method']} {path}")
        name = sent["target"].split(".")[-1] if self.protocol == "json" else dict(urllib.parse.parse_qsl(sent["body"])).get("Action", "")
        if name not in self.model.operation_names:
            raise Refused(f"the service has no operation {name!r}")
        return self.model.operation_model(name)

    def parsed(self, sent: dict, operation) -> dict:
        split = urllib.parse.urlsplit(sent["uri"])
        values = dict(urllib.parse.parse_qsl(sent["body"] if self.protocol in ("ec2", "query") else split.query, keep_blank_values=True))
        request = {"body": sent["body"], "headers": {}, "method": sent["method"], "url_path": split.path, "values": values}
        request["url_params"] = matched(operation.http["requestUri"], split.path) or {}
        try:
            return PARSERS[self.protocol](operation).parse(request)
        except Exception as error:
            raise Refused(f"{operation.name} cannot be read: {error}") from error

    def fields(self, operation, params: dict) -> dict:
        """The request as botocore sends it: every field with its text."""
        request = self.serializer.serialize_to_request(params, operation)
        if self.protocol in ("ec2", "query"):
            return {key: text(value) for key, value in request["body"].items()}
        body = json.loads(request["body"] or "{}")
        return {"(path)": request["url_path"], **flat(body)}


def matched(pattern: str, path: str):
    """The labels of a path, if it is of this form."""
    wanted, given = pattern.split("?")[0].strip("/").split("/"), path.strip("/").split("/")
    if len(wanted) != len(given):
        return None
    labels = {}
    for one, other in zip(wanted, given):
        if one.startswith("{"):
            labels[one.strip("{}+")] = urllib.parse.unquote(other)
        elif one != other:
            return None
    return labels


def text(value) -> str:
    return {True: "true", False: "false"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def flat(value, prefix="") -> dict:
    if isinstance(value, dict):
        return {key: found for name, inner in value.items() for key, found in flat(inner, f"{prefix}.{name}").items()}
    if isinstance(value, list):
        return {key: found for index, inner in enumerate(value) for key, found in flat(inner, f"{prefix}[{index}]").items()}
    return {prefix: text(value)}


def sent_fields(service: Service, sent: dict) -> dict:
    """The request as it was sent."""
    if service.protocol in ("ec2", "query"):
        pairs = urllib.parse.parse_qsl(sent["body"], keep_blank_values=True, strict_parsing=True)
        if len(dict(pairs)) != len(pairs):
            raise Refused("a field is there twice")
        return dict(pairs)
    return {"(path)": urllib.parse.urlsplit(sent["uri"]).path, **flat(json.loads(sent["body"] or "{}"))}


def is_same(one: str, other: str) -> bool:
    if one == other:
        return True
    try:
        return abs(float(one) - float(other)) < TOLERANCE
    except ValueError:
        return False


def differences(ours: dict, theirs: dict, words: tuple) -> list:
    found = [f"{key} {words[0]}: {ours[key]!r}" for key in sorted(ours.keys() - theirs.keys())]
    found += [f"{key} {words[1]}: {theirs[key]!r}" for key in sorted(theirs.keys() - ours.keys())]
    both = sorted(ours.keys() & theirs.keys())
    return found + [f"{key} is {ours[key]!r} and not {theirs[key]!r}" for key in both if not is_same(ours[key], theirs[key])]


def unknown_values(shape, value, place: str) -> list:
    """Values that no enumeration has, and sizes beyond the model's bounds: botocore leaves both to the service."""
    if shape.type_name == "structure":
        return [found for name, inner in value.items() for found in unknown_values(shape.members[name], inner, f"{place}.{name}")]
    size = value if shape.type_name in ("integer", "long", "float", "double") else len(value) if hasattr(value, "__len__") else None
    limits = shape.metadata
    found = []
    if size is not None and "max" in limits and size > limits["max"]:
        found.append(f"{place} has {size}, of at most {limits['max']}")
    if size is not None and "min" in limits and size < limits["min"]:
        found.append(f"{place} has {size}, of at least {limits['min']}")
    if shape.type_name == "list":
        return found + [each for index, inner in enumerate(value) for each in unknown_values(shape.member, inner, f"{place}[{index}]")]
    known = INSTANCE_TYPE.fullmatch(value) if shape.name == "InstanceType" else shape.type_name != "string" or value in (shape.enum or [value])
    if not known:
        found.append(f"{place} is {value!r}, which is none of {', '.join(shape.enum[:12])}")
    return found


def check(sent: dict) -> tuple:
    """The operation and its parameters, if its service's model has nothing against the request."""
    service = Service.named(sent["service"])
    operation = service.operation(sent)
    params = service.parsed(sent, operation)
    if operation.input_shape is not None:
        report = botocore.validate.ParamValidator().validate(params, operation.input_shape)
        if report.has_errors():
            raise Refused(f"{operation.name}: {report.generate_report()}".replace("\n", "; "))
        found = unknown_values(operation.input_shape, params, operation.name)
        if found:
            raise Refused("; ".join(found))
    found = differences(sent_fields(service, sent), service.fields(operation, params), ("is not in the model", "was not sent"))
    if found:
        raise Refused(f"{operation.name}: " + "; ".join(found))
    return operation.name, params


def element_name(node) -> str:
    return node.tag.rsplit("}", 1)[-1]


def wrong_value(shape, value: str, place: str) -> list:
    """Whether a text is a value of its shape."""
    try:
        if shape.type_name in ("integer", "long"):
            int(value)
        elif shape.type_name in ("float", "double"):
            float(value)
        elif shape.type_name == "timestamp":
            botocore.utils.parse_timestamp(value)
        elif shape.type_name == "boolean" and value not in ("true", "false"):
            raise ValueError(value)
        elif shape.type_name == "string" and shape.enum and shape.name not in NEWER and value not in shape.enum:
            return [f"{place} is {value!r}, which is none of {', '.join(shape.enum[:12])}"]
    except ValueError:
        return [f"{place} is {value!r}, which is no {shape.type_name}"]
    return []


def strange_elements(shape, node, place: str) -> list:
    """What an answer in XML has that the model does not know."""
    if shape.type_name == "structure":
        known = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        found = []
        for child in node:
            name = element_name(child)
            found += strange_elements(known[name], child, f"{place}.{name}") if name in known else [f"{place} has no {name}"]
        return found
    if shape.type_name == "list":
        item = shape.member.serialization.get("name", "member")
        found = [f"{place} has items {element_name(child)}" for child in node if element_name(child) != item]
        return found + [each for index, child in enumerate(node) for each in strange_elements(shape.member, child, f"{place}[{index}]")]
    return wrong_value(shape, node.text or "", place)


def strange_members(shape, value, place: str) -> list:
    """The same for JSON."""
    if shape.type_name == "structure":
        known = {member.serialization.get("name", name): member for name, member in shape.members.items()}
        found = [f"{place} has no {name}" for name in value if name not in known]
        return found + [each for name in value if name in known for each in strange_members(known[name], value[name], f"{place}.{name}")]
    if shape.type_name == "list":
        return [each for index, inner in enumerate(value) for each in strange_members(shape.member, inner, f"{place}[{index}]")]
    return wrong_value(shape, text(value), place)


def check_answer(sent: dict, operation: str):
    """Refuses an answer that no service would give."""
    answer = sent.get("answer")
    if not answer or answer["status"] != 200:
        return
    service = Service.named(sent["service"])
    shape = service.model.operation_model(operation).output_shape
    if service.protocol not in ("ec2", "query"):
        found = strange_members(shape, json.loads(answer["body"]), operation) if shape else []
    else:
        root = ElementTree.fromstring(answer["body"])
        found = [] if element_name(root) == f"{operation}Response" else [f"the answer is a {element_name(root)}"]
        beside = {"requestId", "return", "ResponseMetadata"}
        for child in [child for child in root if element_name(child) in beside]:
            root.remove(child)
        if service.protocol == "query":
            root = next((child for child in root if element_name(child) == f"{operation}Result"), ElementTree.Element("none"))
        if shape is not None:
            found += strange_elements(shape, root, operation)
    if found:
        raise Refused("answer: " + "; ".join(found[:5]))


def user_data(content: str) -> str:
    """User data as data: layout does not count, nor the label of the class, which Karpenter gives to claims of its own only."""
    content = re.sub(r"karpenter.k8s.aws/ec2nodeclass=[a-z]+,", "", content)
    content = re.sub(r"(?m)^['\"]karpenter.k8s.aws/ec2nodeclass['\"] = .*\n", "", content)
    if content.startswith("MIME-Version"):
        parts = [part for part in email.message_from_string(content).walk() if not part.is_multipart()]
        return json.dumps([[part.get_content_type(), user_data(part.get_payload().strip())] for part in parts])
    if "[settings" in content:
        return json.dumps(tomllib.loads(content), sort_keys=True)
    if "node.eks.aws/" in content:
        return json.dumps(yaml.safe_load(content), sort_keys=True)
    return content


def template(params: dict, decode) -> dict:
    """A template without its name, which is a hash here and a number there."""
    params = json.loads(json.dumps(params))
    params.pop("ClientToken", None)
    data = params["LaunchTemplateData"]
    if "UserData" in data:
        data["UserData"] = user_data(decode(data["UserData"]))
    return {**params, "LaunchTemplateName": "template"}


def fleet(params: dict, templates: dict, known: dict) -> tuple:
    """A fleet whose templates are named by their places, and those templates."""
    params = json.loads(json.dumps(params))
    params.pop("ClientToken", None)
    for tagged in params.get("TagSpecifications", []):
        tagged["Tags"] = [tag for tag in tagged["Tags"] if tag["Key"] not in OWN_TAGS]
    configs = params["LaunchTemplateConfigs"]
    configs.sort(key=lambda config: [(each["InstanceType"], each["AvailabilityZone"], each["ImageId"]) for each in config["Overrides"]])
    used = []
    for number, config in enumerate(configs):
        name = config["LaunchTemplateSpecification"]["LaunchTemplateName"]
        used.append(templates.get(name) or known.get(name))
        config["LaunchTemplateSpecification"]["LaunchTemplateName"] = f"template-{number}"
    return params, used


def of_attempt(requests: list, decode, known: dict) -> list:
    """The fleets of one attempt with their templates. `known` has those of the attempts before."""
    templates = {params["LaunchTemplateName"]: template(params, decode) for name, params in requests if name == "CreateLaunchTemplate"}
    fleets = [fleet(params, templates, known) for name, params in requests if name == "CreateFleet"]
    known.update(templates)
    return fleets


def merged(params: dict, templates: list) -> tuple:
    """The same with one config for templates that are equal: a golden case may have one image for both architectures."""
    configs, by_content = [], {}
    for config, used in zip(params["LaunchTemplateConfigs"], templates):
        at = by_content.setdefault(json.dumps(used, sort_keys=True), len(configs))
        if at == len(configs):
            configs.append((config, used))
        else:
            configs[at][0]["Overrides"] += config["Overrides"]
    for number, (config, _) in enumerate(configs):
        config["LaunchTemplateSpecification"]["LaunchTemplateName"] = f"template-{number}"
    return {**params, "LaunchTemplateConfigs": [config for config, _ in configs]}, [used for _, used in configs]


def sort_overrides(params: dict):
    for config in params["LaunchTemplateConfigs"]:
        config["Overrides"].sort(key=lambda each: (each["InstanceType"], each["AvailabilityZone"]))


def compare(label: str, ours: list, theirs: list) -> list:
    if len(ours) != len(theirs):
        return [f"{label}: {len(ours)} fleets, and not {len(theirs)}"]
    ec2, found = Service.named("ec2"), []
    words = ("is not in the golden request", "is in the golden request only")
    for (own, own_templates), (other, other_templates) in zip(ours, theirs):
        if len(own_templates) > len(other_templates):
            own, own_templates = merged(own, own_templates)
            sort_overrides(own)
            sort_overrides(other)
        pairs = [("CreateFleet", own, other)]
        pairs += [("CreateLaunchTemplate", mine, golden) for mine, golden in zip(own_templates, other_templates) if golden is not None]
        for name, mine, golden in pairs:
            if mine is None:
                found.append(f"{label}: a template was never created")
                continue
            operation = ec2.model.operation_model(name)
            found += [f"{label}: {name}: {each}" for each in differences(ec2.fields(operation, mine), ec2.fields(operation, golden), words)]
    return found


def without_prefixes(params: dict) -> dict:
    """A golden template whose interfaces ask for addresses alone: Karpenter asks for addresses and prefixes, and EC2 takes one of them."""
    params = json.loads(json.dumps(params))
    for interface in params["LaunchTemplateData"].get("NetworkInterfaces", []):
        if "Ipv6AddressCount" in interface:
            interface.pop("Ipv6PrefixCount", None)
    return params


def compare_golden(folder: pathlib.Path, recorded: dict) -> tuple:
    """Findings, and how many attempts of how many cases were compared."""
    found, attempts, cases = [], 0, 0
    for path in sorted(folder.glob("*.json")):
        ours_known, theirs_known, compared = {}, {}, False
        for number, entry in enumerate(json.loads(path.read_text()), 1):
            label = f"{path.stem} {number}"
            if label not in recorded:
                continue
            golden = [("CreateLaunchTemplate", without_prefixes(params)) for params in entry.get("createLaunchTemplate") or []]
            golden += [("CreateFleet", params) for params in entry.get("createFleet") or []]
            ours = of_attempt(recorded[label], lambda content: base64.b64decode(content).decode(), ours_known)
            found += compare(label, ours, of_attempt(golden, lambda content: content, theirs_known))
            attempts, compared = attempts + 1, True
        cases += compared
    return found, f"{attempts} attempts of {cases} golden launches compared"


def main() -> int:
    found, recorded, counts = [], {}, {}
    for number, line in enumerate(pathlib.Path(sys.argv[1]).read_text().splitlines(), 1):
        sent = json.loads(line)
        by_label = recorded.setdefault(sent["label"], [])
        if not sent["service"]:
            continue  # a launch that sent nothing
        try:
            operation, params = check(sent)
            check_answer(sent, operation)
        except Refused as refused:
            found.append(f"line {number} ({sent['label']}): {refused}")
            continue
        by_label.append((operation, params))
        name = f"{sent['service']}:{operation}"
        counts[name] = counts.get(name, 0) + 1
    if len(sys.argv) > 2:
        differing, compared = compare_golden(pathlib.Path(sys.argv[2]), recorded)
        found += differing
        print(compared)
    for name, count in sorted(counts.items()):
        print(f"{count:>6} {name}")
    print(f"{sum(counts.values())} requests of {len(counts)} operations hold, {len(found)} findings")
    print("\n".join(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
