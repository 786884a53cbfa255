#!/bin/sh
# Stands for kubectl in unit tests, for answers that no real cluster can be made to give. The context says which.
for context; do :; done
if [ "$context" = asking ]; then
    printf 'Please enter Username: '
    echo 'error: EOF' >&2
    exit 1
fi
case "$context" in
unset) echo 'The connection to the server localhost:8080 was refused - did you specify the right host or port?' >&2 && exit 1 ;;
unnamed) echo 'error: context "unnamed" does not exist' >&2 && exit 1 ;;
stranger) echo 'error: You must be logged in to the server (Unauthorized)' >&2 && exit 1 ;;
esac
if [ "$1" = api-resources ]; then
    printf '%s\n' pods nodes nodeclaims.karpenter.sh namespaces
    [ "$context" != limits ] || echo limitranges
    [ "$context" = partly ] || exit 0
    echo 'error: unable to retrieve the complete list of server APIs: metrics.k8s.io/v1beta1: stale GroupVersion discovery' >&2
    exit 1
fi
empty='{"kind": "List", "apiVersion": "v1", "items": []}'
node='{"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}]}'
kinds=$2
[ "$2" != --raw ] || kinds=${3##*/}
case "$context $kinds" in
"halfway pods")
    echo 'Unable to connect to the server: EOF' >&2
    exit 1
    ;;
"silent pods")
    exit 1
    ;;
"empty pods") ;;
"number pods")
    echo '{"kind": "PodList", "apiVersion": "v1", "items": 5}'
    ;;
"itemless pods")
    echo '{"kind": "PodList", "apiVersion": "v1"}'
    ;;
"null pods")
    echo '{"kind": "PodList", "apiVersion": "v1", "items": null}'
    ;;
"cut pods")
    echo '{"items": ['
    ;;
"limits namespaces,limitranges")
    echo '{"kind": "List", "apiVersion": "v1", "items": [{"apiVersion": "v1", "kind": "LimitRange", "metadata": {"name": "defaults"}}]}'
    ;;
"unclear nodes,nodeclaims.karpenter.sh")
    echo "$node"
    echo 'Error from server (Forbidden): something is hidden' >&2
    exit 1
    ;;
"hidden nodes,nodeclaims.karpenter.sh")
    echo "$node"
    echo 'Error from server (Forbidden): nodeclaims.karpenter.sh is forbidden: User "system:serviceaccount:ops:look" cannot list resource' >&2
    exit 1
    ;;
*" nodes,nodeclaims.karpenter.sh" | *" nodes")
    echo 'Warning: some version is deprecated' >&2
    echo "$node"
    ;;
*)
    echo "$empty"
    ;;
esac
