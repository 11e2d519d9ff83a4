"""The store on Amazon DynamoDB: one table, boto3's low-level client."""
