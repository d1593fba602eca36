#include "portable/vendor.h"

#include "base/fail.h"

namespace tuckfold::portable {
namespace {

struct Sdk {
  std::string_view note, before, sdk, imports, calls;  // sdk: its name, where it is not torch
};

constexpr Sdk kTorch = {.note =
                            "Needs torch 2.4 or later alone, on a CPU or a GPU; compiles with "
                            "torch.compile(fullgraph=True).",
                        .before = "import torch\n",
                        .sdk = "",
                        .imports = "",
                        .calls = R"_(
if __name__ == "__main__":
    device = "cuda" if torch.cuda.is_available() else "cpu"
    for name, module in MODULES.items():
        inputs = {key: value.to(device) for key, value in example(module).items()}
        report(name, module().to(device)(**inputs))
)_"};

constexpr Sdk kPoptorch = {
    .note = "For Graphcore's IPUs by PopTorch. It was never run with that SDK.",
    .before = "import torch\n",
    .sdk = "Graphcore's PopTorch",
    .imports = "import poptorch\n",
    .calls = R"_(
def compiled(module: torch.nn.Module):
    """The module as an IPU runs it; PopTorch compiles it at the first call."""
    return poptorch.inferenceModel(module.eval(), options=poptorch.Options())


if __name__ == "__main__":
    for name, module in MODULES.items():
        report(name, compiled(module())(*example(module).values()))
)_"};

constexpr Sdk kSamba = {
    .note = "For SambaNova's RDUs by SambaFlow. It was never run with that SDK.",
    .before = "import torch\n",
    .sdk = "SambaNova's SambaFlow",
    .imports = R"_(import sambaflow.samba.utils as utils
from sambaflow import samba
from sambaflow.samba.utils.argparser import parse_app_args
from sambaflow.samba.utils.pef_utils import get_pefmeta
)_",
    .calls = R"_(
def add_args(parser) -> None:
    parser.add_argument("--module", choices=list(MODULES), default=next(iter(MODULES)))


def main() -> None:
    """`compile` writes a PEF of one module, and `run --pef FILE` runs it."""
    args = parse_app_args(dev_mode=True, common_parser_fn=add_args)
    module = MODULES[args.module]().eval()
    values = example(MODULES[args.module])
    inputs = tuple(samba.from_torch_tensor(value, name=key) for key, value in values.items())
    samba.from_torch_model_(module)
    if args.command == "compile":
        samba.session.compile(
            module,
            inputs,
            name=f"tuckfold_{args.module.lower()}",
            app_dir=utils.get_file_dir(__file__),
            inference=True,
            config_dict=vars(args),
            pef_metadata=get_pefmeta(args, module),
        )
    elif args.command == "run":
        utils.trace_graph(module, inputs, pef=args.pef)
        outputs = samba.session.run(
            input_tensors=inputs, output_tensors=module.output_tensors, section_types=["FWD"]
        )
        report(args.module, [samba.to_torch(output) for output in outputs])


if __name__ == "__main__":
    main()
)_"};

constexpr Sdk kCerebras = {
    .note =
        "For Cerebras' CS-2 by cerebras_pytorch (cerebras.pytorch in later releases). It was never "
        "run with that SDK.",
    .before = "import sys\n\nimport torch\n",
    .sdk = "Cerebras' cerebras_pytorch",
    .imports = "import cerebras_pytorch as cstorch\n",
    .calls = R"_(
def run(module: torch.nn.Module, batches: list) -> list:
    """What the module makes of each batch; a program on the wafer holds one module."""
    compiled = cstorch.compile(module.eval(), cstorch.backend("CSX"))
    loader = cstorch.utils.data.DataLoader(lambda: batches)
    executor = cstorch.utils.data.DataExecutor(loader, num_steps=len(batches))
    results = []

    @cstorch.trace
    def step(batch):
        return compiled(*batch)

    @cstorch.step_closure
    def keep(result):
        results.append(result)

    for batch in executor:
        keep(step(batch))
    return results


if __name__ == "__main__":
    name = sys.argv[1] if len(sys.argv) > 1 else next(iter(MODULES))
    report(name, run(MODULES[name](), [tuple(example(MODULES[name]).values())])[0])
)_"};

constexpr Sdk kGroq = {.note = "For GroqChip by GroqFlow. It was never run with that SDK.",
                       .before = "import torch\n",
                       .sdk = "Groq's GroqFlow",
                       .imports = "from groqflow import groqit\n",
                       .calls = R"_(
def compiled(module: torch.nn.Module, inputs: dict[str, torch.Tensor]):
    """The module as a GroqChip runs it, for inputs of these shapes."""
    return groqit(module.eval(), inputs, build_name=f"tuckfold_{type(module).__name__.lower()}")


if __name__ == "__main__":
    for name, module in MODULES.items():
        inputs = example(module)
        report(name, compiled(module(), inputs)(**inputs))
)_"};

const Sdk& sdk_of(Target target) {
  switch (target) {
    case Target::Torch: return kTorch;
    case Target::Poptorch: return kPoptorch;
    case Target::Samba: return kSamba;
    case Target::Cerebras: return kCerebras;
    case Target::Groq: return kGroq;
    case Target::Onnx: break;
  }
  fail(Errc::Internal, "[export] ONNX models are no Python files");
}

}  // namespace

std::string_view sdk_note(Target target) { return sdk_of(target).note; }

// Without the SDK the error says which one the file needs.
std::string sdk_imports(Target target) {
  const Sdk& sdk = sdk_of(target);
  std::string text(sdk.before);
  if (sdk.sdk.empty()) return text;
  text += "\ntry:\n";
  std::string_view rest = sdk.imports;
  while (!rest.empty()) {
    const std::size_t end = rest.find('\n') + 1;
    text += fmt::format("    {}", rest.substr(0, end));
    rest.remove_prefix(end);
  }
  return text + fmt::format(R"_(except ImportError as error:
    raise ImportError(
        f"this file needs {}, which cannot be imported: {{error}}; "
        "install that SDK, or export the codec with --target torch"
    ) from error
)_",
                            sdk.sdk);
}

std::string_view sdk_calls(Target target) { return sdk_of(target).calls; }

}  // namespace tuckfold::portable
