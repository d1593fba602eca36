def get_pefmeta(args, model) -> dict:
    return {"command": args.command, "model": type(model).__name__}
