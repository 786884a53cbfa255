//! The AWS adapter: EC2, SSM, pricing, IAM, EKS and SQS.
