"""Makes the adapters' calls with boto3, so that its answers can be compared with theirs.

usage: moto_answers.py ENDPOINT

Each line of the input is a call: {"call": NAME, "with": {...}}. Each is answered with a line: {"answer": VALUE}, or {"refused": CODE} if AWS
refused it. Requests are built from the same values as the adapters', and answers have the fields of the adapters' own types, but everything
between the two is done here a second time. Calls whose names begin with "whole" answer AWS's documents as they are, less what is new in each
of them: identifiers, addresses and times.
"""

import base64
import json
import re
import sys
from datetime import timezone

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError
from botocore.parsers import ResponseParserError

REGION = "us-east-1"
DISCOVERY = {"karpenter.sh/discovery": "demo"}
CLUSTER, POOL, CLASS = "eks:eks-cluster-name", "karpenter.sh/nodepool", "karpenter.k8s.aws/ec2nodeclass"
BEFORE_TERMINATED = ["pending", "running", "stopping", "stopped", "shutting-down"]
EVENTS = ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"]
# What is new in each document, and what it is compared as.
NEW = [
    (r"\b(i|r|vol|eni|eni-attach|lt|fleet|eipassoc|sir)-[0-9a-f][0-9a-f-]+", r"<\1>"),
    (r'(?<="InstanceProfileId": ")[^"]+', "<profile id>"),
    (r"\b(?:ip|ec2)-\d+-\d+-\d+-\d+", "<host>"),
    (r"\b\d+\.\d+\.\d+\.\d+\b(?!/)", "<address>"),
    (r"\b[0-9a-f]{2}(:[0-9a-f]{2}){5}\b", "<mac>"),
    (r"\b\d{4}-\d\d-\d\d[T ][0-9:.]+( ?UTC|Z|\+00:00)?", "<time>"),
]


CALLS = {}


def call(function):
    CALLS[function.__name__] = function
    return function


class Clients:
    def __init__(self, endpoint: str):
        # moto reads its tables when they are first asked for, which takes its time on a busy machine.
        config = Config(retries={"total_max_attempts": 1}, read_timeout=600)
        keys = {"aws_access_key_id": "testing", "aws_secret_access_key": "testing"}
        for service in ("ec2", "iam", "ssm", "eks", "pricing", "arc-zonal-shift"):
            setattr(self, service.replace("-", "_"), boto3.client(service, endpoint_url=endpoint, region_name=REGION, config=config, **keys))


def tag_list(tags: dict) -> list:
    return [{"Key": key, "Value": value} for key, value in tags.items()]


def tag_map(tags: list) -> dict:
    return {tag["Key"]: tag.get("Value", "") for tag in tags or []}


def filters(**named) -> list:
    return [{"Name": name.replace("_", "-"), "Values": values} for name, values in named.items()]


def tag_filters(tags: dict) -> list:
    any_value = [key for key, value in tags.items() if value == "*"]
    exact = [{"Name": f"tag:{key}", "Values": [value]} for key, value in tags.items() if value != "*"]
    return exact + [{"Name": "tag-key", "Values": [key]} for key in any_value]


def term_filters(term: dict, id_filter: str, name_filter: str) -> list:
    if term.get("id"):
        return [{"Name": id_filter, "Values": [term["id"]]}]
    named = [{"Name": name_filter, "Values": [term["name"]]}] if term.get("name") else []
    return named + tag_filters(term.get("tags") or {})


def moment(time) -> str:
    return time.astimezone(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def pages(method, key: str, **parameters) -> list:
    found = []
    while True:
        page = method(**parameters)
        found += page[key]
        if not page.get("NextToken"):
            return found
        parameters["NextToken"] = page["NextToken"]


# The region that both sides ask.


@call
def prepare(aws: Clients, _: dict) -> dict:
    """Names and tags a network, images, a parameter, a role and a cluster."""
    subnets = sorted(aws.ec2.describe_subnets()["Subnets"], key=lambda subnet: subnet["AvailabilityZone"])[:3]
    group = aws.ec2.describe_security_groups()["SecurityGroups"][0]
    other = aws.ec2.create_security_group(GroupName="other", Description="another group", VpcId=group["VpcId"])["GroupId"]
    images = [one["ImageId"] for one in aws.ec2.describe_images(Owners=["amazon"])["Images"] if one["Architecture"] == "x86_64"][:2]
    aws.ec2.create_tags(Resources=[subnet["SubnetId"] for subnet in subnets] + [group["GroupId"]], Tags=tag_list(DISCOVERY))
    aws.ec2.create_tags(Resources=[subnets[0]["SubnetId"], other, images[0]], Tags=tag_list({"team": "a", "Name": "with a space"}))
    aws.ssm.put_parameter(Name="/images/own", Value=images[1], Type="String")
    aws.ssm.put_parameter(Name="/images/text", Value="no image", Type="String")
    aws.iam.create_role(RoleName="contract-role", Path="/nodes/", AssumeRolePolicyDocument="{}")
    network = {"subnetIds": [subnet["SubnetId"] for subnet in subnets]}
    aws.eks.create_cluster(name="demo", version="1.33", roleArn="arn:aws:iam::123456789012:role/eks", resourcesVpcConfig=network)
    places = [{"id": subnet["SubnetId"], "zone": subnet["AvailabilityZone"]} for subnet in subnets]
    return {"subnets": places, "group": group["GroupId"], "other": other, "images": images}


@call
def retag(aws: Clients, given: dict) -> None:
    aws.ec2.create_tags(Resources=[given["id"]], Tags=tag_list(given["tags"]))


# What discovery reads.


@call
def cluster_info(aws: Clients, given: dict) -> dict:
    cluster = aws.eks.describe_cluster(name=given["cluster"])["cluster"]
    network = cluster.get("kubernetesNetworkConfig", {})
    return {
        "name": cluster["name"],
        "endpoint": cluster["endpoint"],
        "certificate_authority": cluster["certificateAuthority"]["data"],
        "version": cluster["version"],
        "service_cidr": network.get("serviceIpv4Cidr") or network.get("serviceIpv6Cidr") or "",
        "ipv6": network.get("ipFamily") == "ipv6",
        "arn": cluster["arn"],
        **({"vpc": cluster["resourcesVpcConfig"]["vpcId"]} if "vpcId" in cluster["resourcesVpcConfig"] else {}),
    }


@call
def subnets(aws: Clients, given: dict) -> list:
    def one(subnet: dict) -> dict:
        return {
            "id": subnet["SubnetId"],
            "zone": subnet["AvailabilityZone"],
            "zone_id": subnet["AvailabilityZoneId"],
            "free_addresses": subnet["AvailableIpAddressCount"],
            "vpc": subnet["VpcId"],
            "tags": tag_map(subnet["Tags"]),
        }

    found = pages(aws.ec2.describe_subnets, "Subnets", Filters=term_filters(given["term"], "subnet-id", ""))
    return sorted(map(one, found), key=lambda subnet: subnet["id"])


@call
def security_groups(aws: Clients, given: dict) -> list:
    def one(group: dict) -> dict:
        return {"id": group["GroupId"], "name": group["GroupName"], "vpc": group["VpcId"], "tags": tag_map(group["Tags"])}

    found = pages(aws.ec2.describe_security_groups, "SecurityGroups", Filters=term_filters(given["term"], "group-id", "group-name"))
    return sorted(map(one, found), key=lambda group: group["id"])


def parameter(aws: Clients, name: str) -> list:
    try:
        value = aws.ssm.get_parameter(Name=name)["Parameter"]["Value"]
    except ClientError as error:
        if error.response["Error"]["Code"] == "ParameterNotFound":
            return []
        raise
    return [value] if value.startswith("ami-") else []


@call
def images(aws: Clients, given: dict) -> list:
    term = given["term"]
    if term.get("alias"):
        family, _, version = term["alias"].partition("@")
        assert (family, version) == ("al2023", "latest"), "only this alias is compared"
        place = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id"
        return [{"id": id} for id in parameter(aws, place)]
    if term.get("ssmParameter"):
        ids = parameter(aws, term["ssmParameter"])
        if not ids:
            return []
        wanted = filters(image_id=ids)
    else:
        wanted = term_filters(term, "image-id", "name")
    owned = {"Owners": [term["owner"]]} if term.get("owner") else {"Owners": ["self", "amazon"]} if term.get("name") else {}
    found = pages(aws.ec2.describe_images, "Images", Filters=wanted + filters(state=["available"]), IncludeDeprecated=True, **owned)

    def one(image: dict) -> dict:
        return {
            "id": image["ImageId"],
            "name": image["Name"],
            "owner": image["OwnerId"],
            "architecture": image["Architecture"],
            "created_at": re.sub(r"\.0+Z$", "Z", image["CreationDate"]),
            "deprecated": image.get("DeprecationTime", "9") <= given["now"],
            "variant": "Any",
            "tags": tag_map(image["Tags"]),
        }

    return sorted(map(one, found), key=lambda image: image["id"])


@call
def capacity_reservations(aws: Clients, given: dict) -> list:
    """Those with a tag, after one was made."""
    place = {"AvailabilityZone": given["zone"], "InstanceType": "m5.large", "InstancePlatform": "Linux/UNIX", "InstanceCount": 1}
    tags = [{"ResourceType": "capacity-reservation", "Tags": tag_list(given["term"]["tags"])}]
    aws.ec2.create_capacity_reservation(TagSpecifications=tags, **place)
    wanted = [{"Name": "state", "Values": ["active"]}] + tag_filters(given["term"]["tags"])
    found = pages(aws.ec2.describe_capacity_reservations, "CapacityReservations", Filters=wanted)
    return [{"id": one["CapacityReservationId"], "free": one["AvailableInstanceCount"]} for one in found]


@call
def placement_groups(aws: Clients, given: dict) -> list:
    """The one of a name, after it was made."""
    aws.ec2.create_placement_group(GroupName=given["name"], Strategy="cluster")
    found = aws.ec2.describe_placement_groups(GroupNames=[given["name"]])["PlacementGroups"]
    return [{"id": one["GroupId"], "name": one["GroupName"], "strategy": one["Strategy"], "state": one["State"]} for one in found]


@call
def on_demand_price(aws: Clients, given: dict) -> int:
    """In billionths of a dollar."""
    wanted = [{"Type": "TERM_MATCH", "Field": field, "Value": value} for field, value in given["fields"].items()]
    [product] = aws.pricing.get_products(ServiceCode="AmazonEC2", Filters=wanted)["PriceList"]
    [term] = json.loads(product)["terms"]["OnDemand"].values()
    [dimension] = term["priceDimensions"].values()
    return round(float(dimension["pricePerUnit"]["USD"]) * 1e9)


@call
def zone_shifts(aws: Clients, given: dict) -> list:
    found = aws.arc_zonal_shift.get_managed_resource(resourceIdentifier=given["arn"])["zonalShifts"]
    return [one["awayFrom"] for one in found]


def network_card(card: dict, has_efa: bool) -> dict:
    """Its number, its interfaces, and which EFA interfaces it takes if not all."""
    kinds = card.get("InterfaceTypes", []) if has_efa else []
    efa = {} if not kinds or "efa" in kinds else {"e": "efa-only" if "efa-only" in kinds else "none"}
    return {"i": card["NetworkCardIndex"], "x": card["MaximumNetworkInterfaces"]} | efa


def facts(info: dict) -> dict:
    """The facts of an instance type that decisions use, absent where the adapter leaves them out."""
    cpu, ebs, storage, network = info.get("ProcessorInfo", {}), info.get("EbsInfo", {}), info.get("InstanceStorageInfo", {}), info["NetworkInfo"]
    clock, efa = cpu.get("SustainedClockSpeedInGhz"), network.get("EfaInfo", {})
    optional = {
        "cm": cpu.get("Manufacturer"),
        "cs": None if clock is None else round(clock * 1000),
        "cf": cpu.get("SupportedFeatures"),
        "h": info.get("Hypervisor"),
        "g": [
            {"c": one["Count"], "m": one["Manufacturer"], "n": one["Name"], "mem": one.get("MemoryInfo", {}).get("SizeInMiB", 0)}
            for one in info.get("GpuInfo", {}).get("Gpus", [])
        ],
        "ia": [
            {"c": one["Count"], "m": one["Manufacturer"], "n": one["Name"]}
            for one in info.get("InferenceAcceleratorInfo", {}).get("Accelerators", [])
        ],
        "ne": [
            {"c": one["Count"], "n": one["Name"], "k": one.get("CoreInfo", {}).get("Count", 0)}
            for one in info.get("NeuronInfo", {}).get("NeuronDevices", [])
        ],
        "sn": storage.get("NvmeSupport"),
        "nd": network.get("DefaultNetworkCardIndex"),
        "ena": network.get("EnaSupport") in ("required", "supported"),
        "efa": efa.get("MaximumEfaInterfaces"),
        "enc": network.get("EncryptionInTransitSupported"),
        "eo": ebs.get("EbsOptimizedSupport"),
        "eb": ebs.get("EbsOptimizedInfo", {}).get("MaximumBandwidthInMbps"),
        "ea": ebs.get("MaximumEbsAttachments"),
        "el": ebs.get("AttachmentLimitType"),
        "nx": info.get("NitroEnclavesSupport") == "supported",
        "sg": storage.get("TotalSizeInGB"),
    }
    always = {
        "n": info["InstanceType"],
        "a": cpu.get("SupportedArchitectures", []),
        "v": info.get("VCpuInfo", {}).get("DefaultVCpus", 0),
        "m": info.get("MemoryInfo", {}).get("SizeInMiB", 0),
        "u": info.get("SupportedUsageClasses", []),
        "nc": [network_card(one, bool(efa.get("MaximumEfaInterfaces"))) for one in network.get("NetworkCards", [])],
        "ip": network.get("Ipv4AddressesPerInterface", 0),
        "ps": info.get("PlacementGroupInfo", {}).get("SupportedStrategies", []),
    }
    return always | {key: value for key, value in optional.items() if value}


@call
def instance_types(aws: Clients, _: dict) -> list:
    wanted = filters(supported_virtualization_type=["hvm"]) + [
        {"Name": "processor-info.supported-architecture", "Values": ["x86_64", "arm64"]}
    ]
    found = pages(aws.ec2.describe_instance_types, "InstanceTypes", Filters=wanted, MaxResults=100)
    return sorted(map(facts, found), key=lambda one: one["n"])


@call
def offerings(aws: Clients, _: dict) -> dict:
    found = {}
    method = aws.ec2.describe_instance_type_offerings
    for one in pages(method, "InstanceTypeOfferings", LocationType="availability-zone", MaxResults=1000):
        found.setdefault(one["InstanceType"], set()).add(one["Location"])
    return {name: sorted(zones) for name, zones in found.items()}


@call
def spot_prices(aws: Clients, given: dict) -> dict:
    """In billionths of a dollar."""
    found = {}
    products = ["Linux/UNIX", "Linux/UNIX (Amazon VPC)"]
    method = aws.ec2.describe_spot_price_history
    for one in pages(method, "SpotPriceHistory", ProductDescriptions=products, StartTime=given["now"], MaxResults=1000):
        found.setdefault(one["InstanceType"], {})[one["AvailabilityZone"]] = round(float(one["SpotPrice"]) * 1e9)
    return found


# Instance profiles.


@call
def ensure_instance_profile(aws: Clients, given: dict) -> str:
    name = given["name"]
    try:
        roles = aws.iam.get_instance_profile(InstanceProfileName=name)["InstanceProfile"]["Roles"]
    except aws.iam.exceptions.NoSuchEntityException:
        roles = []
        aws.iam.create_instance_profile(InstanceProfileName=name, Path=given["path"], Tags=tag_list(given["tags"]))
    if not roles:
        aws.iam.add_role_to_instance_profile(InstanceProfileName=name, RoleName=given["role"])
    return name


@call
def profile_role(aws: Clients, given: dict) -> str:
    return aws.iam.get_instance_profile(InstanceProfileName=given["name"])["InstanceProfile"]["Roles"][0]["RoleName"]


@call
def profiles(aws: Clients, given: dict) -> list:
    found = aws.iam.list_instance_profiles(PathPrefix=f"/karpenter/{REGION}/{given['cluster']}/")["InstanceProfiles"]

    def one(profile: dict) -> dict:
        of_class = profile["Path"].rstrip("/").rsplit("/", 1)[1]
        role = profile["Roles"][0]["RoleName"]
        return {"name": profile["InstanceProfileName"], "arn": profile["Arn"], "class": of_class, "role": role}

    return sorted(map(one, found), key=lambda profile: profile["name"])


@call
def delete_profile(aws: Clients, given: dict) -> bool:
    aws.iam.remove_role_from_instance_profile(InstanceProfileName=given["name"], RoleName=given["role"])
    aws.iam.delete_instance_profile(InstanceProfileName=given["name"])
    return True


# Launch templates and fleets.


def capitals(values: dict, **renamed) -> dict:
    return {renamed.get(key, key[:1].upper() + key[1:]): value for key, value in values.items()}


def volume(mapping: dict) -> dict:
    ebs = dict(mapping["ebs"])
    ebs["volumeSize"] = int(ebs["volumeSize"].removesuffix("Gi"))
    return {"DeviceName": mapping["deviceName"], "Ebs": capitals(ebs)}


def interface(given: dict, groups: list) -> dict:
    names = {
        "card_index": "NetworkCardIndex",
        "device_index": "DeviceIndex",
        "interface_type": "InterfaceType",
        "associate_public_ip": "AssociatePublicIpAddress",
    }
    return {names[key]: value for key, value in given.items() if value is not None} | {"Groups": groups}


@call
def ensure_launch_template(aws: Clients, given: dict) -> None:
    template = given["template"]
    groups = template["security_group_ids"]
    data = {
        "ImageId": template["image_id"],
        "UserData": base64.b64encode(template["user_data"].encode()).decode(),
        "IamInstanceProfile": {"Name": template["instance_profile"]},
        "BlockDeviceMappings": [volume(mapping) for mapping in template["block_device_mappings"]],
        "NetworkInterfaces": [interface(one, groups) for one in template["interfaces"]],
        "Monitoring": {"Enabled": template["detailed_monitoring"]},
        "MetadataOptions": capitals(template["metadata_options"], httpProtocolIPv6="HttpProtocolIpv6") | {"InstanceMetadataTags": "disabled"},
        "Placement": {"Tenancy": template["tenancy"]},
        "EnclaveOptions": {"Enabled": template["enclave"]},
        "TagSpecifications": [{"ResourceType": "network-interface", "Tags": tag_list(template["tags"])}],
    }
    tags = [{"ResourceType": "launch-template", "Tags": tag_list(template["tags"])}]
    try:
        aws.ec2.create_launch_template(LaunchTemplateName=template["name"], LaunchTemplateData=data, TagSpecifications=tags)
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidLaunchTemplateName.AlreadyExistsException":
            raise


@call
def launch_templates(aws: Clients, given: dict) -> list:
    wanted = tag_filters({CLUSTER: given["cluster"]})
    found = pages(aws.ec2.describe_launch_templates, "LaunchTemplates", Filters=wanted)
    return sorted(one["LaunchTemplateName"] for one in found)


@call
def delete_launch_template(aws: Clients, given: dict) -> None:
    aws.ec2.delete_launch_template(LaunchTemplateName=given["name"])


def fleet_call(request: dict) -> dict:
    def pool(given: dict) -> dict:
        return {
            "InstanceType": given["instance_type"],
            "SubnetId": given["subnet_id"],
            "AvailabilityZone": given["zone"],
            "ImageId": given["image_id"],
            "Priority": given["price"] / 1e9,
        }

    def config(given: dict) -> dict:
        specification = {"LaunchTemplateName": given["launch_template"], "Version": "$Latest"}
        return {"LaunchTemplateSpecification": specification, "Overrides": [pool(one) for one in given["overrides"]]}

    options = {
        "spot": {"SpotOptions": {"AllocationStrategy": "price-capacity-optimized"}},
        "on-demand": {"OnDemandOptions": {"AllocationStrategy": "lowest-price"}},
    }
    kinds = ("instance", "volume", "fleet")
    return {
        "Type": "instant",
        "ClientToken": request["client_token"],
        "TargetCapacitySpecification": {
            "TotalTargetCapacity": request["target_capacity"],
            "DefaultTargetCapacityType": request["capacity_type"],
        },
        "LaunchTemplateConfigs": [config(one) for one in request["configs"]],
        "TagSpecifications": [{"ResourceType": kind, "Tags": tag_list(request["tags"])} for kind in kinds],
        **options[request["capacity_type"]],
    }


def fleet_answer(answer: dict, request: dict) -> dict:
    machines = []
    for entry in answer.get("Instances", []):
        place = entry.get("LaunchTemplateAndOverrides", {}).get("Overrides", {})
        for id in entry["InstanceIds"]:
            machines.append(
                {
                    "id": id,
                    "instance_type": entry["InstanceType"],
                    "zone": place.get("AvailabilityZone", ""),
                    "subnet_id": place.get("SubnetId", ""),
                    "image_id": place.get("ImageId", ""),
                    "capacity_type": request["capacity_type"],
                }
            )
    return {"fleet_id": answer["FleetId"], "instances": machines, "errors": answer.get("Errors", [])}


@call
def create_fleet(aws: Clients, given: dict) -> dict:
    return fleet_answer(aws.ec2.create_fleet(**fleet_call(given["request"])), given["request"])


@call
def fleet(aws: Clients, given: dict):
    found = aws.ec2.describe_fleets(FleetIds=[given["id"]])["Fleets"]
    return fleet_answer(found[0], given["request"]) if found else None


def dry(method, **parameters) -> None:
    try:
        method(DryRun=True, **parameters)
    except ClientError as error:
        if error.response["Error"]["Code"] == "DryRunOperation":
            return
        raise
    sys.exit("a dry run was answered as if it were none")


@call
def dry_run_fleet(aws: Clients, given: dict) -> None:
    dry(aws.ec2.create_fleet, **fleet_call(given["request"]))


@call
def dry_run_instance(aws: Clients, given: dict) -> None:
    template = given["template"]
    tags = [{"ResourceType": kind, "Tags": tag_list(template["tags"])} for kind in ("instance", "volume", "network-interface")]
    cards = [interface(one, template["security_group_ids"]) | {"SubnetId": given["subnet_id"]} for one in template["interfaces"]]
    run = {"LaunchTemplate": {"LaunchTemplateName": template["name"], "Version": "$Latest"}, "InstanceType": given["instance_type"]}
    dry(aws.ec2.run_instances, MinCount=1, MaxCount=1, NetworkInterfaces=cards, TagSpecifications=tags, **run)


# Instances.


def instance(entry: dict) -> dict:
    placement = entry.get("Placement", {})
    reason = entry.get("StateReason", {})
    return {
        "id": entry["InstanceId"],
        "state": entry["State"]["Name"].title().replace("-", ""),
        "instance_type": entry["InstanceType"],
        "zone": placement["AvailabilityZone"],
        "capacity_type": "spot" if entry.get("SpotInstanceRequestId") else "on-demand",
        "image_id": entry["ImageId"],
        "subnet_id": entry["SubnetId"],
        "security_groups": sorted(group["GroupId"] for group in entry["SecurityGroups"]),
        "reservation": entry.get("CapacityReservationId") or None,
        "placement_group": placement.get("GroupId") or None,
        "partition": placement.get("PartitionNumber") or None,
        "private_dns_name": entry["PrivateDnsName"],
        "state_reason": {"code": reason["Code"], "message": reason.get("Message", "")} if reason.get("Code") else None,
        "launched_at": moment(entry["LaunchTime"]),
        "tags": tag_map(entry["Tags"]),
    }


def described(aws: Clients, **parameters) -> list:
    found = pages(aws.ec2.describe_instances, "Reservations", **parameters)
    return sorted((one for entry in found for one in entry["Instances"]), key=lambda one: one["InstanceId"])


@call
def instance_of(aws: Clients, given: dict):
    try:
        found = described(aws, InstanceIds=[given["id"]])
    except ClientError as error:
        if error.response["Error"]["Code"] == "InvalidInstanceID.NotFound":
            return None
        raise
    return instance(found[0])


@call
def tagged(aws: Clients, given: dict) -> list:
    return [instance(one) for one in described(aws, Filters=tag_filters({given["key"]: given["value"]}))]


@call
def of_cluster(aws: Clients, given: dict) -> list:
    wanted = tag_filters({POOL: "*", CLASS: "*", CLUSTER: given["cluster"]}) + filters(instance_state_name=BEFORE_TERMINATED)
    return [instance(one) for one in described(aws, Filters=wanted)]


@call
def tag(aws: Clients, given: dict) -> None:
    aws.ec2.create_tags(Resources=[given["id"]], Tags=tag_list(given["tags"]))


@call
def terminate(aws: Clients, given: dict) -> None:
    try:
        aws.ec2.terminate_instances(InstanceIds=[given["id"]])
    except ClientError as error:
        if error.response["Error"]["Code"] != "InvalidInstanceID.NotFound":
            raise


@call
def failing(aws: Clients, given: dict) -> list:
    def since(summary: dict):
        failed = [detail["ImpairedSince"] for detail in summary.get("Details", []) if detail["Status"] == "failed"]
        return moment(min(failed)) if failed else None

    def is_due(event: dict) -> bool:
        return event["Code"] in EVENTS and not event["Description"].startswith(("[Completed]", "[Canceled]"))

    found = []
    for one in aws.ec2.describe_instance_status(InstanceIds=given["ids"])["InstanceStatuses"]:
        impaired = [since(one["InstanceStatus"]), since(one["SystemStatus"])]
        event = any(map(is_due, one.get("Events", [])))
        if any(impaired) or event:
            found.append({"instance": one["InstanceId"], "impaired": impaired, "event": event})
    return sorted(found, key=lambda one: one["instance"])


# Whole documents.


def neutral(value, own: list):
    text = json.dumps(value, default=str, sort_keys=True)
    for number, name in enumerate(own):
        text = text.replace(json.dumps(name)[1:-1], f"<own {number}>")
    for pattern, kind in NEW:
        text = re.sub(pattern, kind, text)
    return json.loads(text)


@call
def whole_value(_: Clients, given: dict):
    return neutral(given["value"], given["own"])


@call
def whole_template(aws: Clients, given: dict) -> dict:
    names = {"LaunchTemplateNames": [given["name"]]}
    versions = aws.ec2.describe_launch_template_versions(LaunchTemplateName=given["name"])["LaunchTemplateVersions"]
    return neutral([aws.ec2.describe_launch_templates(**names)["LaunchTemplates"], versions], given["own"])


@call
def whole_profile(aws: Clients, given: dict) -> dict:
    return neutral(aws.iam.get_instance_profile(InstanceProfileName=given["name"])["InstanceProfile"], given["own"])


@call
def whole_instances(aws: Clients, given: dict) -> dict:
    """Instances, their volumes and interfaces, the fleets that started them."""
    machines = described(aws, InstanceIds=given["ids"])
    disks = aws.ec2.describe_volumes(Filters=[{"Name": "attachment.instance-id", "Values": given["ids"]}])["Volumes"]
    cards = aws.ec2.describe_network_interfaces(Filters=[{"Name": "attachment.instance-id", "Values": given["ids"]}])["NetworkInterfaces"]
    fleets = aws.ec2.describe_fleets(FleetIds=[given["fleet"]])["Fleets"]
    found = {"instances": machines, "volumes": disks, "interfaces": cards, "fleets": fleets}
    return {kind: sorted(neutral(values, given["own"]), key=json.dumps) for kind, values in found.items()}


def main() -> None:
    aws = Clients(sys.argv[1])
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            answer = {"answer": CALLS[asked["call"]](aws, asked["with"])}
        except ClientError as error:
            answer = {"refused": error.response["Error"]["Code"]}
        except ResponseParserError:
            answer = {"refused": "what moto answered is none of AWS's answers"}
        print(json.dumps(answer, default=str), flush=True)


if __name__ == "__main__":
    main()
