"""Python that Dynamo rejects or specialises on."""
