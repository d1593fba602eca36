import argparse


def parse_app_args(dev_mode: bool, common_parser_fn) -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["compile", "run"])
    parser.add_argument("--pef")
    common_parser_fn(parser)
    return parser.parse_args()
