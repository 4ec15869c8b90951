#!/usr/bin/env python3
"""Deploy the folder that this file is in as a hosted SageMaker endpoint, ask it once, delete it.

    pip install boto3
    ./deploy_sagemaker.py --bucket BUCKET --role ROLE_ARN --image IMAGE_URI --instance ml.g5.2xlarge
    ./deploy_sagemaker.py --delete

ROLE_ARN is a role that SageMaker may assume, with read access to the bucket and the image.
IMAGE_URI is a serving image in ECR that loads a Hugging Face folder from /opt/ml/model, such as the
LMI or the Text Generation Inference containers of AWS. The weights are uploaded as they are: the
container gets the folder without a tar in between. Credentials and region are boto3's usual ones.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import boto3
from botocore.exceptions import BotoCoreError, ClientError, WaiterError

FOLDER = Path(__file__).resolve().parent


def main() -> int:
    args = arguments()
    sagemaker = boto3.client("sagemaker")
    try:
        if args.delete:
            delete(sagemaker, args.name)
            return 0
        check_sums()
        uri = upload(args.bucket, f"{args.prefix.strip('/')}/{args.name}/")
        deploy(sagemaker, args, uri)
        print("waiting for the endpoint, which takes minutes ...", flush=True)
        wait(sagemaker, args)
        print(json.dumps(invoke(args), ensure_ascii=False))
    except (BotoCoreError, ClientError, OSError, RuntimeError) as error:
        print(f"{error}\nto remove what was made: --delete --name {args.name}", file=sys.stderr)
        return 1
    print(f"endpoint {args.name} is in service and costs money until --delete --name {args.name}")
    return 0


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Deploy this folder as a SageMaker endpoint.")
    parser.add_argument("--name", default=FOLDER.name.replace("_", "-").replace(".", "-"))
    parser.add_argument("--bucket", help="where the files are uploaded to")
    parser.add_argument("--prefix", default="models", help="below which key")
    parser.add_argument("--role", help="ARN of the role that the endpoint runs under")
    parser.add_argument("--image", help="URI of the serving image")
    parser.add_argument("--instance", default="ml.g5.2xlarge", help="instance type")
    parser.add_argument("--count", type=int, default=1, help="instances")
    parser.add_argument("--prompt", default="The young falcon")
    parser.add_argument("--poll", type=float, default=30, help="seconds between looks at the state")
    parser.add_argument("--delete", action="store_true", help="endpoint, configuration and model")
    args = parser.parse_args()
    missing = [n for n in ("bucket", "role", "image") if getattr(args, n) is None]
    if missing and not args.delete:
        parser.error("also needed: " + ", ".join(f"--{name}" for name in missing))
    return args


def check_sums() -> None:
    """What is uploaded is what was exported."""
    for line in (FOLDER / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ", 1)
        with (FOLDER / name).open("rb") as file:
            if hashlib.file_digest(file, "sha256").hexdigest() != digest:
                raise RuntimeError(f"{name} is damaged: its SHA-256 is not that of SHA256SUMS")


def upload(bucket: str, prefix: str) -> str:
    s3 = boto3.client("s3")
    for path in sorted(p for p in FOLDER.iterdir() if p.is_file()):
        print(f"uploading {path.name}, {path.stat().st_size:,} bytes", flush=True)
        s3.upload_file(str(path), bucket, prefix + path.name)
    return f"s3://{bucket}/{prefix}"


def deploy(sagemaker: Any, args: argparse.Namespace, uri: str) -> None:
    data = {"S3Uri": uri, "S3DataType": "S3Prefix", "CompressionType": "None"}
    sagemaker.create_model(
        ModelName=args.name,
        ExecutionRoleArn=args.role,
        PrimaryContainer={
            "Image": args.image,
            "ModelDataSource": {"S3DataSource": data},
            "Environment": {"HF_MODEL_ID": "/opt/ml/model", "HF_HUB_OFFLINE": "1"},
        },
    )
    variant = {
        "VariantName": "all",
        "ModelName": args.name,
        "InstanceType": args.instance,
        "InitialInstanceCount": args.count,
        "ModelDataDownloadTimeoutInSeconds": 3600,
        "ContainerStartupHealthCheckTimeoutInSeconds": 3600,
    }
    sagemaker.create_endpoint_config(EndpointConfigName=args.name, ProductionVariants=[variant])
    sagemaker.create_endpoint(EndpointName=args.name, EndpointConfigName=args.name)


def wait(sagemaker: Any, args: argparse.Namespace) -> None:
    waiter = sagemaker.get_waiter("endpoint_in_service")
    try:
        waiter.wait(EndpointName=args.name, WaiterConfig={"Delay": args.poll, "MaxAttempts": 240})
    except WaiterError as error:
        found = sagemaker.describe_endpoint(EndpointName=args.name)
        why = found.get("FailureReason", "no reason given")
        raise RuntimeError(f"the endpoint is {found['EndpointStatus']}: {why}") from error


def invoke(args: argparse.Namespace) -> object:
    body = {"inputs": args.prompt, "parameters": {"max_new_tokens": 32, "do_sample": False}}
    answer = boto3.client("sagemaker-runtime").invoke_endpoint(
        EndpointName=args.name, ContentType="application/json", Body=json.dumps(body)
    )
    return json.loads(answer["Body"].read())


def delete(sagemaker: Any, name: str) -> None:
    """Each is tried, also where one is gone already; the files in the bucket stay."""
    kinds = {
        "endpoint": lambda: sagemaker.delete_endpoint(EndpointName=name),
        "endpoint configuration": lambda: sagemaker.delete_endpoint_config(EndpointConfigName=name),
        "model": lambda: sagemaker.delete_model(ModelName=name),
    }
    for kind, act in kinds.items():
        try:
            act()
            print(f"deleted {kind} {name}")
        except ClientError as error:
            if error.response["Error"]["Code"] != "ValidationException":
                raise
            print(f"there is no {kind} {name}")


if __name__ == "__main__":
    sys.exit(main())
