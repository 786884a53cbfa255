#!/bin/sh
# Stands for kubectl where a test needs a cluster that no real API server can be: it prints the lists in the folder CLUSTER, or behaves as
# the file `mood` there says. It notes what it was asked.
echo "$*" >>"$CLUSTER/asked"
case "$(cat "$CLUSTER/mood" 2>/dev/null)" in
hangs) exec sleep 600 ;;
garbage)
    [ "$1" != api-resources ] && echo '<html>502 Bad Gateway</html>' && exit 0
    ;;
dies)
    [ "$1" != api-resources ] && printf '{"kind": "List", "apiVersion": "v1", "items": [{"kind": ' && kill -KILL $$
    ;;
denies)
    echo 'error: You must be logged in to the server (Unauthorized)' >&2
    exit 1
    ;;
esac
case "$1 $2 $3" in
"api-resources "*)
    printf '%s\n' pods nodes nodepools.karpenter.sh nodeclaims.karpenter.sh ec2nodeclasses.karpenter.k8s.aws
    ;;
"config view "*)
    echo '{"contexts": [{"context": {"cluster": "arn:aws:eks:eu-west-1:111122223333:cluster/shop"}}]}'
    ;;
"get --raw /version") echo '{"gitVersion": "v1.33.4"}' ;;
"get --raw /api/v1/pods") cat "$CLUSTER/pods.json" ;;
"get events "*) cat "$CLUSTER/events.json" ;;
"get nodes,"*) cat "$CLUSTER/nodes.json" ;;
*)
    echo "error: this is no kubectl: $*" >&2
    exit 1
    ;;
esac
