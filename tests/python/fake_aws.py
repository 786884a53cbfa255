"""Drives a simulated AWS with boto3: a machine's life, profiles, images, a cluster and prices.

usage: fake_aws.py ENDPOINT

boto3 reads every answer with AWS's own model of the service, and raises the errors that the model has.
"""

import json
import sys
import urllib.request

import boto3
from botocore.config import Config
from botocore.exceptions import ClientError

REGION = "us-east-1"
TAGS = [{"Key": "eks:eks-cluster-name", "Value": "demo"}]


def client(endpoint: str, service: str, key: str = "owner"):
    return boto3.client(
        service,
        endpoint_url=endpoint,
        region_name=REGION,
        aws_access_key_id=key,
        aws_secret_access_key="secret",
        config=Config(retries={"total_max_attempts": 1}),
    )


def control(endpoint: str, change: dict = None, path: str = ""):
    body = None if change is None else json.dumps(change).encode()
    with urllib.request.urlopen(f"{endpoint}/_control{path}", data=body) as answer:
        return json.load(answer)


def code_of(call, **parameters) -> str:
    """The code of the error that a call must end with."""
    try:
        call(**parameters)
    except ClientError as error:
        return error.response["Error"]["Code"]
    return ""


def expect(found, wanted, what: str) -> None:
    if found != wanted:
        sys.exit(f"{what}: {found!r}, expected {wanted!r}")


def machines(endpoint: str) -> None:
    ec2 = client(endpoint, "ec2")
    subnets = ec2.describe_subnets(Filters=[{"Name": "tag:karpenter.sh/discovery", "Values": ["demo"]}])["Subnets"]
    expect(len(subnets), 3, "subnets")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    ec2.create_launch_template(
        LaunchTemplateName="boto/1",
        LaunchTemplateData={"ImageId": image},
        TagSpecifications=[{"ResourceType": "launch-template", "Tags": TAGS}],
    )
    template = {"LaunchTemplateName": "boto/1", "Version": "$Latest"}
    overrides = [
        {"InstanceType": "m5.large", "SubnetId": subnet["SubnetId"], "AvailabilityZone": subnet["AvailabilityZone"]}
        for subnet in subnets
    ]
    request = {
        "Type": "instant",
        "ClientToken": "boto",
        "TargetCapacitySpecification": {"TotalTargetCapacity": 2, "DefaultTargetCapacityType": "spot"},
        "LaunchTemplateConfigs": [{"LaunchTemplateSpecification": template, "Overrides": overrides}],
        "TagSpecifications": [{"ResourceType": "instance", "Tags": TAGS}],
    }
    fleet = ec2.create_fleet(**request)
    ids = [id for entry in fleet["Instances"] for id in entry["InstanceIds"]]
    expect((len(ids), fleet["Errors"]), (2, []), "a fleet")
    control(endpoint, {"advanceSeconds": 60})
    found = [one for page in ec2.get_paginator("describe_instances").paginate(InstanceIds=ids) for one in page["Reservations"]]
    expect({one["Instances"][0]["State"]["Name"] for one in found}, {"running"}, "states")
    statuses = ec2.describe_instance_status(InstanceIds=ids)["InstanceStatuses"]
    expect([one["InstanceStatus"]["Status"] for one in statuses], ["ok", "ok"], "checks")
    control(endpoint, {"interrupt": ids[:1], "nextAnswers": {"CreateFleet": [{"status": 503, "code": "RequestLimitExceeded"}]}})
    expect(code_of(ec2.create_fleet, **request), "RequestLimitExceeded", "a fault")
    kinds = [event["detail-type"] for event in control(endpoint, path="/events")]
    expect(kinds.count("EC2 Spot Instance Interruption Warning"), 1, "warnings")
    ec2.terminate_instances(InstanceIds=ids)
    expect(code_of(ec2.terminate_instances, InstanceIds=["i-0123456789abcdef0"]), "InvalidInstanceID.NotFound", "an unknown id")
    expect(len(ec2.describe_instance_types(MaxResults=100)["InstanceTypes"]), 100, "a page")


def others(endpoint: str) -> None:
    iam = client(endpoint, "iam")
    iam.create_instance_profile(InstanceProfileName="boto", Path="/karpenter/", Tags=TAGS)
    iam.add_role_to_instance_profile(InstanceProfileName="boto", RoleName="KarpenterNodeRole-demo")
    profile = iam.get_instance_profile(InstanceProfileName="boto")["InstanceProfile"]
    expect(profile["Roles"][0]["RoleName"], "KarpenterNodeRole-demo", "a role")
    name = "/aws/service/eks/optimized-ami/1.33/amazon-linux-2023/x86_64/standard/recommended/image_id"
    value = client(endpoint, "ssm").get_parameter(Name=name)["Parameter"]["Value"]
    expect(value.startswith("ami-"), True, "a parameter")
    eks = client(endpoint, "eks")
    expect(eks.describe_cluster(name="demo")["cluster"]["status"], "ACTIVE", "a cluster")
    expect(code_of(eks.describe_cluster, name="other"), "ResourceNotFoundException", "another cluster")
    filters = [{"Type": "TERM_MATCH", "Field": "instanceType", "Value": "m5.large"}]
    products = client(endpoint, "pricing").get_products(ServiceCode="AmazonEC2", Filters=filters)["PriceList"]
    expect(json.loads(products[0])["product"]["attributes"]["instanceType"], "m5.large", "a price")


def rights(endpoint: str) -> None:
    statement = {"Effect": "Allow", "Action": "ec2:DescribeImages", "Resource": "*"}
    control(endpoint, {"policies": {"reader": [{"Version": "2012-10-17", "Statement": [statement]}]}})
    reader = client(endpoint, "ec2", "reader")
    reader.describe_images()
    expect(code_of(reader.describe_subnets), "UnauthorizedOperation", "a right of EC2")
    expect(code_of(client(endpoint, "iam", "reader").list_instance_profiles), "AccessDenied", "a right of IAM")
    expect(code_of(client(endpoint, "eks", "reader").describe_cluster, name="demo"), "AccessDeniedException", "a right of EKS")
    expect(code_of(client(endpoint, "ssm", "reader").get_parameter, Name="/a"), "AccessDeniedException", "a right of SSM")
    lacks = [call["lacks"] for call in control(endpoint, path="/journal") if call["principal"] == "reader"]
    expect(lacks[:2], [None, "ec2:DescribeSubnets on *"], "the journal")


def main() -> None:
    endpoint = sys.argv[1]
    machines(endpoint)
    others(endpoint)
    rights(endpoint)
    state = control(endpoint)
    print(f"boto3 made {state['calls']} calls, and was answered as AWS's models have it")


if __name__ == "__main__":
    main()
