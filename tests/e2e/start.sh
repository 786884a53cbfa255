#!/bin/bash
# Starts the rig on the control plane of KUBECONFIG, for a measurement from outside; hook.json says how it is called.
# RIG_BUILT, RIG_BINARY and RIG_WATCHER name what is built already: a measurement does not wait for a build. RIG_DOORBELL is webhook or watcher.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
cd "$here/../.."
exec ${RIG_XTASK:-cargo xtask} e2e up --foreground --folder "$(mktemp -du)" --kubeconfig "$KUBECONFIG" --instance-types "$here/catalog.json" \
  ${RIG_BUILT:+--built "$RIG_BUILT"} ${RIG_BINARY:+--rig "$RIG_BINARY"} ${RIG_WATCHER:+--watcher "$RIG_WATCHER"} \
  --doorbell "${RIG_DOORBELL:-webhook}" \
  -- --ready-port "$RIG_READY_PORT" --parameter VmMemoryOverheadPercent=0 ${RIG_PARAMETERS:-}
