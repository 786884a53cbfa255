//! Claims at rest in DynamoDB.
