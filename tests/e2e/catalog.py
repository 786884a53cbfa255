"""Writes the types that Karpenter's KWOK provider sells by default, as a catalog of the plan format, for Linux.

usage: catalog.py FILE

Sizes of 1 to 256 CPUs with 2, 4 or 8 GiB each, two architectures, spot at 70 % of the price: that is what Karpenter is measured
with (kwok/tools/gen_instance_types.go of sigs.k8s.io/karpenter 1.14.1). Its four zones are the three of the rig's region here.
catalog.json is what this writes.
"""

import json
import sys

CPUS = [1, 2, 4, 8, 16, 32, 48, 64, 96, 128, 192, 256]
FAMILIES = {"c": 2, "s": 4, "m": 8}
ZONES = ["us-west-2a", "us-west-2b", "us-west-2c"]
CPU_PRICE, GB_PRICE, SPOT = 0.025, 0.001, 0.7


def offering(price: float, kind: str, zone: str) -> dict:
    wanted = {"karpenter.sh/capacity-type": kind, "topology.kubernetes.io/zone": zone}
    requirements = [{"key": key, "operator": "In", "values": [value]} for key, value in wanted.items()]
    return {"Price": round(price, 6), "Available": True, "Requirements": requirements}


def kind(family: str, cpus: int, arch: str) -> dict:
    memory = cpus * FAMILIES[family]
    price = cpus * CPU_PRICE + memory * 2**30 / 1e9 * GB_PRICE
    prices = {"spot": price * SPOT, "on-demand": price}
    return {
        "name": f"{family}-{cpus}x-{arch}-linux",
        "architecture": arch,
        "operatingSystems": ["linux"],
        "resources": {"cpu": str(cpus), "memory": f"{memory}Gi", "pods": str(min(cpus * 16, 1024)), "ephemeral-storage": "20Gi"},
        "offerings": [offering(prices[name], name, zone) for zone in ZONES for name in prices],
    }


def main() -> None:
    types = [kind(family, cpus, arch) for cpus in CPUS for family in FAMILIES for arch in ("amd64", "arm64")]
    with open(sys.argv[1], "w", encoding="utf-8") as file:
        file.write("[\n" + ",\n".join(json.dumps(one, separators=(",", ":")) for one in types) + "\n]\n")


main()
