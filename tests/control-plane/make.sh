#!/bin/bash
# make.sh [K8S [ETCD [KWOK]]]: builds kube-apiserver, kube-scheduler, kube-controller-manager, kubectl, etcd and kwok
# from Go modules. Needs only Go >= the go line of each module and the module proxy. `cargo xtask env` calls it once.
#   CP_BIN   where the binaries go          (default: bin next to this script)
#   CP_GOFLAGS  more flags for go
#   CP_WORK  where the go.mod files are put (default: the script's folder)
set -euo pipefail
K=${1:-v1.37.1} E=${2:-v3.6.16} W=${3:-v0.8.0}
R=${CP_WORK:-$(cd "$(dirname "$0")" && pwd)}; OUT=${CP_BIN:-$R/bin}; mkdir -p "$OUT" "$R/mod"/{k8s,etcd,kwok}
export CGO_ENABLED=0 GOTOOLCHAIN=local GOFLAGS="-mod=mod -trimpath -buildvcs=false ${CP_GOFLAGS:-}"
step() { local t; t=$(date +%s%3N); "${@:2}"; echo "$1: $(( $(date +%s%3N) - t )) ms"; }

# 1. go.mod files. Kubernetes points its own library modules at local folders (replace lines that do not travel);
#    the same libraries are published as k8s.io/<name> v0.<minor>.<patch>.
gen_k8s() {
  cd "$R/mod/k8s"; printf 'module controlplane\n' > go.mod; rm -f go.sum
  local up; up=$(go mod download -json "k8s.io/kubernetes@$K" | sed -n 's/^\t"GoMod": "\(.*\)",$/\1/p')
  {
    printf 'module controlplane\n\n'; sed -n 's/^go [0-9.]*$/&/p; s/^godebug .*/&/p' "$up"; printf '\ntool (\n'
    for c in kube-apiserver kube-scheduler kube-controller-manager kubectl; do echo "	k8s.io/kubernetes/cmd/$c"; done
    printf ')\n\nrequire k8s.io/kubernetes %s\n\nreplace (\n' "$K"
    sed -n 's#^[[:space:]]*\(k8s\.io/[a-z0-9-]*\) => \./staging/.*#\t\1 => \1 '"v0.${K#v1.}"'#p' "$up"; echo ')'
  } > go.mod
}
gen_one() { # gen_one DIR MAIN_PACKAGE MODULE VERSION
  cd "$R/mod/$1"; rm -f go.sum; printf 'module %stool\n\ngo 1.26.0\n\ntool %s\n\nrequire %s %s\n' "$1" "$2" "$3" "$4" > go.mod
}
# "tool" as a package pattern = everything go.mod lists as a tool; listing its dependencies downloads what a build needs, no more
fetch() { cd "$R/mod/$1"; go list -deps tool > /dev/null 2>&1 || go list -deps tool > /dev/null; }
build() { cd "$R/mod/$1"; go build -tags grpcnotrace -ldflags "$4" -o "$OUT/$2" "$3"; }

if [ "${CP_KEEP_MOD:-}" = "" ]; then gen_k8s; gen_one etcd go.etcd.io/etcd/server/v3 go.etcd.io/etcd/server/v3 "$E"; gen_one kwok sigs.k8s.io/kwok/cmd/kwok sigs.k8s.io/kwok "$W"; fi
for m in k8s etcd kwok; do step "download $m" fetch $m; done
L="-s -w"; IFS=. read -r MA MI _ <<< "${K#v}"
for p in k8s.io/component-base/version k8s.io/client-go/pkg/version; do
  L+=" -X $p.gitVersion=$K -X $p.gitMajor=$MA -X $p.gitMinor=$MI -X $p.gitTreeState=clean -X $p.gitCommit=module -X $p.buildDate=1970-01-01T00:00:00Z"
done
for c in kube-apiserver kube-scheduler kube-controller-manager kubectl; do step "build $c" build k8s $c "k8s.io/kubernetes/cmd/$c" "$L"; done
step "build etcd" build etcd etcd go.etcd.io/etcd/server/v3 "-s -w"
step "build kwok" build kwok kwok sigs.k8s.io/kwok/cmd/kwok "-s -w -X sigs.k8s.io/kwok/pkg/consts.Version=$W"
"$OUT/kube-apiserver" --version; "$OUT/etcd" --version | sed -n 1p; "$OUT/kwok" --version; ls -l "$OUT"
