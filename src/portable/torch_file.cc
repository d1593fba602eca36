// Python files: a module for each graph in plain torch, and the calls of the target's SDK.
#include <cmath>

#include "base/fail.h"
#include "portable/count.h"
#include "portable/targets.h"
#include "portable/vendor.h"
#include "tuckfold/version.h"

namespace tuckfold::portable {
namespace {

std::string torch_type(DType dtype) {
  switch (dtype) {
    case DType::F32: return "torch.float32";
    case DType::F16: return "torch.float16";
    case DType::BF16: return "torch.bfloat16";
    case DType::U8: return "torch.uint8";
    case DType::I64: return "torch.int64";
    default: break;
  }
  fail(Errc::Internal, "[export] {} has no type here", to_string(dtype));
}

std::string tuple_of(const Shape& shape) {
  return fmt::format("({}{})", fmt::join(shape, ", "), shape.rank() == 1 ? "," : "");
}
std::string list_of(const Shape& shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

// The shortest text that reads back as the same f32.
std::string number(float value) {
  if (std::isnan(value)) return "math.nan";
  if (std::isinf(value)) return value > 0 ? "math.inf" : "-math.inf";
  const std::string text = fmt::format("{}", value);
  return text.find_first_of(".e") == text.npos ? text + ".0" : text;
}

std::string rows_of(const Matrix& m) {
  std::string text = "[\n";
  for (std::int64_t i = 0; i < m.rows; ++i) {
    std::vector<std::string> row;
    for (std::int64_t j = 0; j < m.cols; ++j) {
      row.push_back(number(m.values[static_cast<std::size_t>(i * m.cols + j)]));
    }
    text += fmt::format("            [{}],\n", fmt::join(row, ", "));
  }
  return text + "        ]";
}

class Module {
 public:
  // SDKs take constants as parameters, and torch's own products.
  Module(const Graph& graph, bool for_sdk) : graph_(graph), for_sdk_(for_sdk) {}

  // Whether there are constants other than numbers.
  static bool keeps(const Graph& graph) {
    return std::any_of(graph.constants().begin(), graph.constants().end(),
                       [](const Constant& constant) { return !constant.scalar; });
  }

  std::string text() const {
    std::vector<std::string> taken;
    for (const Id id : graph_.inputs()) {
      const Value& value = graph_[id];
      taken.push_back(fmt::format("\"{}\": ({}, {})", value.name, tuple_of(value.shape),
                                  torch_type(value.dtype)));
    }
    return fmt::format("class {}({}):\n    \"\"\"{} -> {}\"\"\"\n\n    INPUTS = {{{}}}\n\n{}{}",
                       graph_.name(), keeps(graph_) ? "ExactModule" : "torch.nn.Module",
                       described(graph_.inputs()), described(graph_.outputs()),
                       fmt::join(taken, ", "), constants(), forward());
  }

 private:
  std::string described(const std::vector<Id>& ids) const {
    std::vector<std::string> texts;
    for (const Id id : ids) {
      texts.push_back(fmt::format("{}: {}{}", graph_[id].name, to_string(graph_[id].dtype),
                                  list_of(graph_[id].shape)));
    }
    return fmt::format("{}", fmt::join(texts, ", "));
  }

  std::string constants() const {
    if (!keeps(graph_)) return "";
    std::string text = "    @staticmethod\n    def constants() -> dict[str, torch.Tensor]:\n";
    std::vector<std::string> named;
    for (const Value& value : graph_.values()) {
      if (value.constant < 0) continue;
      const Constant& constant = graph_.constants()[static_cast<std::size_t>(value.constant)];
      if (constant.scalar) continue;
      text += fmt::format("        {} = {}\n", value.name, expression(constant, value.shape));
      named.push_back(fmt::format("\"{0}\": {0}", value.name));
    }
    return text + fmt::format("        return {{{}}}\n\n", fmt::join(named, ", "));
  }

  std::string expression(const Constant& constant, const Shape& shape) const {
    if (!constant.python.empty()) return constant.python;
    if (!constant.wholes.empty())
      return fmt::format("torch.tensor([{}], dtype=torch.int64, device=\"cpu\")",
                         fmt::join(constant.wholes, ", "));
    if (constant.copies > 0 || !constant.last.values.empty()) {
      const std::string last =
          constant.last.values.empty() ? "" : fmt::format(", {}", rows_of(constant.last));
      return fmt::format("block_diagonal({}, {}{})", constant.copies, rows_of(constant.block),
                         last);
    }
    std::vector<std::string> values;
    for (const float value : constant.floats) values.push_back(number(value));
    const std::string list = fmt::format("torch.tensor([{}], dtype=torch.float32, device=\"cpu\")",
                                         fmt::join(values, ", "));
    return shape.rank() == 1 ? list : fmt::format("{}.reshape({})", list, fmt::join(shape, ", "));
  }

  std::string name(Id id) const {
    const Constant* constant = graph_.constant_of(id);
    if (constant == nullptr) return graph_[id].name;
    return constant->scalar ? number(constant->floats[0]) : "self." + graph_[id].name;
  }

  std::string forward() const {
    std::vector<std::string> inputs, outputs;
    for (const Id id : graph_.inputs()) inputs.push_back(name(id) + ": torch.Tensor");
    for (const Id id : graph_.outputs()) outputs.push_back(name(id));
    const std::string returned =
        outputs.size() == 1 ? "torch.Tensor" : "tuple[torch.Tensor, torch.Tensor]";
    std::string text =
        fmt::format("    def forward(self, {}) -> {}:\n", fmt::join(inputs, ", "), returned);
    for (const Id id : graph_.inputs()) text += check(graph_[id]);
    for (const Node& node : graph_.nodes()) {
      if (!node.note.empty()) text += fmt::format("        # {}\n", node.note);
      const Value& value = graph_[node.output];
      text += fmt::format("        {} = {}  # {}\n", value.name, call(node), list_of(value.shape));
    }
    return text + fmt::format("        return {}\n", fmt::join(outputs, ", "));
  }

  // Slices and reshapes would take other shapes and drop or mix values; only products work for any
  // batch.
  std::string check(const Value& input) const {
    const bool fixed =
        input.shape.rank() < 2 || std::any_of(graph_.nodes().begin(), graph_.nodes().end(),
                                              [](const Node& n) { return n.op == Op::Reshape; });
    Shape shape = input.shape;
    if (!fixed) shape = {shape[shape.rank() - 2], shape[shape.rank() - 1]};
    return fmt::format("        check(\"{0}\", {0}, {1}, {2}{3})\n", input.name, tuple_of(shape),
                       torch_type(input.dtype), fixed ? "" : ", any_batch=True");
  }

  // Zero before what a scatter or a gather takes its places from: an index for every value.
  std::string places(const Node& node, const Shape& shape) const {
    return fmt::format("{}.expand({})", name(node.inputs[1]), fmt::join(shape, ", "));
  }

  std::string call(const Node& node) const {
    const std::string x = name(node.inputs[0]);
    const std::string y = node.inputs.size() > 1 ? name(node.inputs[1]) : "";
    const Value& out = graph_[node.output];
    switch (node.op) {
      case Op::MatMul: return fmt::format("{}matmul({}, {})", for_sdk_ ? "torch." : "", x, y);
      case Op::Add: return fmt::format("{} + {}", x, y);
      case Op::Sub: return fmt::format("{} - {}", x, y);
      case Op::Mul: return fmt::format("{} * {}", x, y);
      case Op::Div: return fmt::format("{} / {}", x, y);
      case Op::Abs: return fmt::format("torch.abs({})", x);
      case Op::Floor: return fmt::format("torch.floor({})", x);
      case Op::Round: return fmt::format("torch.round({})", x);
      case Op::Clamp: return clamp(node);
      case Op::Where:
        return fmt::format("torch.where({} > {}, {}, {})", x, y, name(node.inputs[2]),
                           name(node.inputs[3]));
      case Op::Max: return fmt::format("torch.amax({}, -1, keepdim=True)", x);
      case Op::Min: return fmt::format("torch.amin({}, -1, keepdim=True)", x);
      case Op::Sum: return fmt::format("torch.sum({}, -1, keepdim=True)", x);
      case Op::Cast: return fmt::format("{}.to({})", x, torch_type(out.dtype));
      case Op::Reshape: return fmt::format("torch.reshape({}, {})", x, tuple_of(out.shape));
      case Op::Permute:
        return fmt::format("torch.permute({}, ({}))", x, fmt::join(node.axes, ", "));
      case Op::Cat: {
        std::vector<std::string> parts;
        for (const Id id : node.inputs) parts.push_back(name(id));
        return fmt::format("torch.cat(({}), {})", fmt::join(parts, ", "), node.axes[0]);
      }
      case Op::Slice: {
        std::string trailing;
        for (std::int64_t axis = node.axes[0]; axis < -1; ++axis) trailing += ", :";
        const bool all = static_cast<std::int64_t>(out.shape.rank()) == -node.axes[0];
        return fmt::format("{}[{}{}:{}{}]", x, all ? "" : "..., ", node.axes[1], node.axes[2],
                           trailing);
      }
      case Op::Gather: return fmt::format("torch.gather({}, -1, {})", x, places(node, out.shape));
      case Op::Pick: return fmt::format("torch.gather({}, -1, {})", x, y);
      case Op::Lookup:
        return fmt::format("torch.gather({}.expand({}, {}), -1, {})", x, out.shape[0],
                           graph_[node.inputs[0]].shape[0], y);
      case Op::Scatter:
        return fmt::format("torch.scatter({}.new_zeros({}), -1, {}, {})", x, tuple_of(out.shape),
                           places(node, graph_[node.inputs[0]].shape), x);
    }
    fail(Errc::Internal, "[export] an operator without a text");
  }

  std::string clamp(const Node& node) const {
    const std::string low = std::isinf(node.low) ? "" : ", min=" + number(node.low);
    const std::string high = std::isinf(node.high) ? "" : ", max=" + number(node.high);
    return fmt::format("torch.clamp({}{}{})", name(node.inputs[0]), low, high);
  }

  const Graph& graph_;
  bool for_sdk_;
};

bool has(const Graph& graph, auto&& test) {
  return std::any_of(graph.constants().begin(), graph.constants().end(), test);
}

constexpr const char* kBlockDiagonal = R"_(
def block_diagonal(copies: int, block: list, last: list | None = None) -> torch.Tensor:
    """`copies` of a block along the diagonal, and a last one after them; zeros elsewhere."""
    blocks = [block] * copies + ([] if last is None else [last])
    return torch.block_diag(
        *(torch.tensor(one, dtype=torch.float32, device="cpu") for one in blocks)
    )

)_";

constexpr const char* kCheck = R"_(
@torch.fx.wrap
def check(
    name: str, value: torch.Tensor, shape: tuple, dtype: torch.dtype, any_batch: bool = False
) -> None:
    """Refuses a tensor of another shape or dtype; with any_batch `shape` has the last two axes."""
    if value.dtype != dtype:
        raise ValueError(
            f"[{SPEC}] {name} must be {dtype}, got {value.dtype}; convert it, or export the codec "
            "for that dtype"
        )
    given = tuple(value.shape)
    if (given[-2:] if any_batch else given) != shape:
        axes = "end in" if any_batch else "be"
        raise ValueError(
            f"[{SPEC}] the shape of {name} must {axes} {shape}, got {given}; "
            "export the codec for that shape"
        )
)_";

// torch.is_autocast_enabled() of old releases, which SDKs come with, is of CUDA alone.
constexpr const char* kRefuseAutocast =
    R"_(    if torch.is_autocast_enabled() or torch.is_autocast_cpu_enabled():
        raise ValueError(
            f"[{SPEC}] products must be of f32, and torch.autocast makes them less; leave it for "
            "this module"
        )
)_";

constexpr const char* kMatmul = R"_(
@torch.fx.wrap
def matmul(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """A product of f32, also under torch.autocast, which would round it to f16 or bf16."""
    if a.is_meta or not torch.is_autocast_enabled(a.device.type):
        return torch.matmul(a, b)
    with torch.autocast(a.device.type, enabled=False):
        return torch.matmul(a, b)

)_";

// Constants are made anew on the CPU for each device: a cast loses bits, and those of meta have none.
std::string exact_module(bool for_sdk) {
  return fmt::format(R"_(
class ExactModule(torch.nn.Module):
    """Constants that move to other devices; half() and other casts do not round them."""

    def __init__(self) -> None:
        super().__init__()
        self._hold(torch.empty(0).device)  # that of `with torch.device(...)` where there is one

    def _hold(self, device: torch.device) -> None:
        for name, value in self.constants().items():
            {}

    def _apply(self, fn, *given, **named):
        for held in list(self.{}.values()):
            device = fn(held).device
        if device != held.device:
            self._hold(device)
        return self

)_",
                     for_sdk ? "value = torch.nn.Parameter(value.to(device), requires_grad=False)\n"
                               "            self.register_parameter(name, value)"
                             : "self.register_buffer(name, value.to(device), persistent=False)",
                     for_sdk ? "_parameters" : "_buffers");
}

constexpr const char* kStepTable = R"_(
def step_table(zero: bool) -> torch.Tensor:
    """Steps of dct_quant: the f32 of the bits q * 2^21; NaN for fields that no block has."""
    bits = torch.arange(1024, dtype=torch.int32, device="cpu") * 2**21
    steps = bits.view(torch.float32)
    steps[:80] = steps[1020:] = math.nan
    if zero:
        steps[0] = 0.0
    return steps

)_";

constexpr const char* kExample = R"_(
def example(module: type[torch.nn.Module]) -> dict[str, torch.Tensor]:
    """Random values in the shapes that a module takes."""
    inputs = module.INPUTS.items()
    return {name: (255 * torch.rand(shape)).to(dtype) for name, (shape, dtype) in inputs}


def report(name: str, outputs) -> None:
    for output in outputs if isinstance(outputs, (tuple, list)) else (outputs,):
        print(name, tuple(output.shape), output.dtype)

)_";

constexpr const char* kToBytes = R"_(
def to_bytes(codes: torch.Tensor, headers: torch.Tensor) -> bytes:
    """The library's packed bytes: the codes, then each group's scale and minimum as bf16."""
    check("codes", codes, (CODES,), torch.uint8)
    check("headers", headers, (GROUPS, 2), torch.float32)
    bits = headers.cpu().contiguous().view(torch.int32)
    if (bits & 0xFFFF).any():
        raise ValueError(f"[{SPEC}] headers must be exact in bf16, as those of Pack are")
    halves = (bits >> 16).to(torch.int16)
    return codes.cpu().numpy().tobytes() + halves.numpy().tobytes()


def from_bytes(packed: bytes) -> tuple[torch.Tensor, torch.Tensor]:
    """Codes and headers of what the library packed."""
    if len(packed) != CODES + 4 * GROUPS:
        raise ValueError(
            f"[{SPEC}] packed must have {CODES + 4 * GROUPS} bytes, got {len(packed)}; "
            "export the codec for the shape that was packed"
        )
    both = torch.frombuffer(bytearray(packed), dtype=torch.uint8)
    headers = both[CODES:].clone().view(torch.bfloat16).to(torch.float32)
    return both[:CODES], headers.reshape(-1, 2)

)_";

std::string opening(const Export& codec, Target target) {
  std::string usage;
  for (const auto* graph : {&codec.pack, &codec.unpack}) {
    if (!graph->has_value()) continue;
    std::vector<std::string> from, to;
    for (const Id id : (*graph)->inputs()) from.push_back((**graph)[id].name);
    for (const Id id : (*graph)->outputs()) to.push_back((**graph)[id].name);
    usage += fmt::format("    {} = {}()({})\n", fmt::join(to, ", "), (*graph)->name(),
                         fmt::join(from, ", "));
  }
  return fmt::format(R"_("""{} of {}{} in plain PyTorch operators.

{}
{}
Written by tuckfold {}. What is packed here the library unpacks, and the other way round.
"""

)_",
                     codec.spec.print(), to_string(codec.dtype), list_of(codec.shape), usage,
                     sdk_note(target), version());
}

}  // namespace

std::string torch_file(const Export& codec, Target target) {
  std::vector<const Graph*> graphs;
  for (const auto* graph : {&codec.pack, &codec.unpack}) {
    if (graph->has_value()) graphs.push_back(&**graph);
  }
  bool diagonal = false, table = false, nan = false, quantized = false, products = false;
  bool keeps = false;
  for (const Graph* graph : graphs) {
    diagonal |=
        has(*graph, [](const Constant& c) { return c.copies > 0 || !c.last.values.empty(); });
    table |= has(*graph, [](const Constant& c) { return !c.python.empty(); });
    nan |= has(*graph, [](const Constant& c) { return c.scalar && !std::isfinite(c.floats[0]); });
    quantized |= graph->inputs().size() + graph->outputs().size() == 3;
    products |= count(*graph).products > 0;
    keeps |= Module::keeps(*graph);
  }
  std::string text = opening(codec, target);
  // SDKs come with Python 3.8, which cannot evaluate annotations such as dict[str, int].
  text += "from __future__ import annotations\n\n";
  if (table || nan) text += "import math\n\n";
  text += sdk_imports(target);
  text += fmt::format("\nSPEC = \"{}\"\nSHAPE = {}\nDTYPE = {}\n", codec.spec.print(),
                      tuple_of(codec.shape), torch_type(codec.dtype));
  if (quantized) {
    const Graph& graph = *graphs.front();
    const auto& both = graph.inputs().size() == 2 ? graph.inputs() : graph.outputs();
    text += fmt::format("CODES = {}  # values, a byte each; headers follow\nGROUPS = {}\n",
                        graph[both[0]].shape[0], graph[both[1]].shape[0]);
  }
  text += "\n";
  const bool sdk = target != Target::Torch;
  text += kCheck;
  if (products && sdk) text += kRefuseAutocast;
  text += "\n";
  if (products && !sdk) text += kMatmul;
  if (diagonal) text += kBlockDiagonal;
  if (table) text += kStepTable;
  if (quantized) text += kToBytes;
  if (keeps) text += exact_module(sdk);
  std::vector<std::string> modules;
  for (const Graph* graph : graphs) {
    text += "\n" + Module(*graph, sdk).text() + "\n";
    modules.push_back(fmt::format("\"{0}\": {0}", graph->name()));
  }
  return text + fmt::format("\nMODULES = {{{}}}\n\n", fmt::join(modules, ", ")) + kExample +
         std::string(sdk_calls(target));
}

}  // namespace tuckfold::portable
