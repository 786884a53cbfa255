#!/bin/sh
# Stands for aws and kubectl. The profile, or the context, is the folder with the answers; what it is asked is kept there.
for word; do
  case $before in --profile | --context) folder=$word ;; esac
  before=$word
done
echo "$*" >>"$folder/asked"
none() {
  echo "An error occurred ($1)" >&2
  exit 254
}
case "$*" in
"cloudformation describe-stacks --stack-name whittle-watcher-shop "*) none "ValidationError: Stack with id whittle-watcher-shop does not exist" ;;
"cloudformation describe-stacks "*) cat "$folder/stack" 2>/dev/null || none "ValidationError: Stack with id whittle does not exist" ;;
"eks describe-cluster "*) cat "$folder/cluster" 2>/dev/null || none ResourceNotFoundException ;;
"eks describe-access-entry "*) none ResourceNotFoundException ;;
"iam get-role --role-name KarpenterNodeRole-shop "*) cat "$folder/role" ;;
"iam get-role "*) none NoSuchEntity ;;
"sts get-caller-identity "*) echo '{"Account": "1", "Arn": "arn:aws:iam::1:user/me"}' ;;
"ec2 describe-instances "*)
  # The second answer may be another one.
  test "$(grep -c describe-instances "$folder/asked")" -gt 1 && cat "$folder/later" 2>/dev/null || echo '{}'
  ;;
"dynamodb get-item "*) cat "$folder/record" 2>/dev/null || true ;;
"config view "*) echo '{"clusters": [{"cluster": {"server": "https://shop"}}]}' ;;
"get "*) ;;
*) echo '{}' ;;
esac
