// The stack machine of pickle, without the instructions that make pickles dangerous.
#include "inputs/pickle.h"

#include <unordered_map>

#include "base/fail.h"

namespace tuckfold {

// A file of a few bytes per value cannot make more nodes than this: CIFAR-100 has 150,000.
constexpr std::size_t kMostNodes = 1 << 20;

class PickleMachine {
 public:
  PickleMachine(std::span<const std::byte> bytes, std::string_view path, Pickle& out)
      : rest_(bytes), size_(bytes.size()), path_(path), out_(out), nodes_(out.nodes_) {}

  Pickle::Value run() {
    for (;;) {
      const int opcode = static_cast<int>(take(1)[0]);
      if (opcode == '.') return pop();
      step(opcode);
    }
  }

 private:
  using Kind = Pickle::Kind;
  using Node = Pickle::Node;
  using Value = Pickle::Value;

  [[noreturn]] void corrupt(std::string_view rule) const {
    fail(Errc::CorruptData, "[pickle] '{}': {}, before byte {}; copy it again", path_, rule,
         size_ - rest_.size());
  }

  std::span<const std::byte> take(std::uint64_t count) {
    if (count > rest_.size()) corrupt("it is truncated");
    const std::span<const std::byte> taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }

  std::uint64_t number(std::size_t count) {
    std::uint64_t value = 0;
    std::size_t shift = 0;
    for (const std::byte byte : take(count)) {
      value |= static_cast<std::uint64_t>(byte) << shift;
      shift += 8;
    }
    return value;
  }

  std::span<const std::byte> line() {
    std::size_t length = 0;
    while (length < rest_.size() && rest_[length] != std::byte{'\n'}) ++length;
    const std::span<const std::byte> found = take(length);
    take(1);
    return found;
  }

  void push(Node node) {
    if (nodes_.size() == kMostNodes) {
      fail(Errc::Unsupported, "[pickle] '{}' has more than {} values; save it with numpy.savez",
           path_, kMostNodes);
    }
    stack_.push_back(static_cast<Value>(nodes_.size()));
    nodes_.push_back(std::move(node));
  }
  void push_int(std::int64_t value) { push({.kind = Kind::Int, .number = value}); }
  void push_text(std::span<const std::byte> bytes) { push({.kind = Kind::Text, .bytes = bytes}); }

  // Nothing is taken from below the last mark.
  Value pop() {
    if (stack_.size() == (marks_.empty() ? 0 : marks_.back())) corrupt("a value is missing");
    const Value value = stack_.back();
    stack_.pop_back();
    return value;
  }

  std::vector<Value> pop_to_mark() {
    if (marks_.empty()) corrupt("a mark is missing");
    std::vector<Value> items(stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back()),
                             stack_.end());
    stack_.resize(marks_.back());
    marks_.pop_back();
    return items;
  }

  void push_tuple(std::size_t length) {
    std::vector<Value> items(length);
    for (std::size_t i = length; i-- > 0;) items[i] = pop();
    push({.kind = Kind::Tuple, .items = std::move(items)});
  }

  void push_name() {
    const Value name = pop(), module = pop();
    if (nodes_[name].kind != Kind::Text || nodes_[module].kind != Kind::Text) {
      corrupt("a name is no text");
    }
    push({.kind = Kind::Name, .items = {module, name}});
  }

  // Protocol 2 has no bytes: Python 3 writes _codecs.encode(text, "latin1"), a character for each byte.
  void push_encoded(Value arguments) {
    const std::vector<Value>& given = nodes_[arguments].items;
    if (given.size() != 2 || nodes_[given[0]].kind != Kind::Text ||
        Pickle::text(nodes_[given[1]]) != "latin1") {
      unsupported("an encoding other than latin1");
    }
    const std::span<const std::byte> text = nodes_[given[0]].bytes;
    // Each text is encoded once; one that is recalled and encoded again would fill memory.
    made_bytes_ += text.size();
    if (made_bytes_ > size_) corrupt("it encodes more text than it has");
    const std::shared_ptr<Bytes> bytes = Bytes::scratch(text.size(), "pickle");
    std::size_t count = 0;
    for (std::size_t i = 0; i < text.size(); ++i) {
      const auto first = static_cast<unsigned>(text[i]);
      unsigned value = first;
      if (first >= 0x80) {
        const unsigned second = i + 1 < text.size() ? static_cast<unsigned>(text[++i]) : 0;
        if ((first & 0xfe) != 0xc2 || (second & 0xc0) != 0x80) corrupt("a text is no latin1");
        value = (first & 0x03) << 6 | (second & 0x3f);
      }
      bytes->scratch_data()[count++] = static_cast<std::byte>(value);
    }
    out_.made_.push_back(bytes);
    push_text(bytes->span().first(count));
  }

  // Appends to the list or dict on top.
  void extend(Kind kind, const std::vector<Value>& items) {
    const Value top = pop();
    if (nodes_[top].kind != kind) corrupt("something is added to what cannot hold it");
    if (kind == Kind::Dict && items.size() % 2 != 0) corrupt("a key has no value");
    // One value may be on the stack any number of times; lists of lists stay small nevertheless.
    held_ += items.size();
    if (held_ > 4 * kMostNodes) corrupt("its lists are too long");
    nodes_[top].items.insert(nodes_[top].items.end(), items.begin(), items.end());
    stack_.push_back(top);
  }

  void remember(std::uint64_t place) {
    const Value top = pop();
    stack_.push_back(top);
    if (memo_.size() == 4 * kMostNodes) corrupt("it remembers too much");
    memo_[place] = top;
  }

  void recall(std::uint64_t place) {
    const auto found = memo_.find(place);
    if (found == memo_.end()) corrupt("a value is used that was never made");
    if (stack_.size() == 4 * kMostNodes) corrupt("its stack is too deep");
    stack_.push_back(found->second);
  }

  void step(int opcode) {
    switch (opcode) {
      case 0x80: {  // PROTO
        const std::uint64_t version = number(1);
        if (version < 2 || version > 5) unsupported(fmt::format("protocol {}", version));
        return;
      }
      case 0x95:  // FRAME: for those who read a stream
        if (number(8) > rest_.size()) corrupt("it is truncated");
        return;
      case '(':  // MARK
        if (marks_.size() == kMostNodes) corrupt("its stack is too deep");
        return marks_.push_back(stack_.size());
      case 'N': return push({});
      case 0x88: return push({.kind = Kind::Bool, .number = 1});
      case 0x89: return push({.kind = Kind::Bool, .number = 0});
      case 'K': return push_int(static_cast<std::int64_t>(number(1)));
      case 'M': return push_int(static_cast<std::int64_t>(number(2)));
      case 'J': return push_int(static_cast<std::int32_t>(number(4)));
      case 'U':   // SHORT_BINSTRING
      case 'C':   // SHORT_BINBYTES
      case 0x8c:  // SHORT_BINUNICODE
        return push_text(take(number(1)));
      case 0x8d:  // BINUNICODE8
      case 0x8e:  // BINBYTES8
      case 0x96:  // BYTEARRAY8
        return push_text(take(number(8)));
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
      case 'X':  // BINUNICODE
        return push_text(take(number(4)));
      case '}': return push({.kind = Kind::Dict});
      case ']': return push({.kind = Kind::List});
      case ')': return push_tuple(0);
      case 0x85: return push_tuple(1);
      case 0x86: return push_tuple(2);
      case 0x87: return push_tuple(3);
      case 't': return push({.kind = Kind::Tuple, .items = pop_to_mark()});
      case 'a': {  // APPEND
        const Value item = pop();
        return extend(Kind::List, {item});
      }
      case 'e': return extend(Kind::List, pop_to_mark());
      case 's': {  // SETITEM
        const Value value = pop(), key = pop();
        return extend(Kind::Dict, {key, value});
      }
      case 'u': return extend(Kind::Dict, pop_to_mark());
      case 'q': return remember(number(1));
      case 'r': return remember(number(4));
      case 0x94: return remember(memo_.size());  // MEMOIZE
      case 'h': return recall(number(1));
      case 'j': return recall(number(4));
      case 'c':  // GLOBAL
        push_text(line());
        push_text(line());
        return push_name();
      case 0x93: return push_name();  // STACK_GLOBAL
      case 'R': {                     // REDUCE
        const Value arguments = pop(), called = pop();
        if (nodes_[called].kind != Kind::Name || nodes_[arguments].kind != Kind::Tuple) {
          corrupt("what is called is no name");
        }
        if (out_.is_name(nodes_[called], "_codecs", "encode")) return push_encoded(arguments);
        return push({.kind = Kind::Call, .items = {called, arguments}});
      }
      case 'b': {  // BUILD
        const Value state = pop(), built = pop();
        if (nodes_[built].kind != Kind::Call || nodes_[built].items.size() != 2) {
          corrupt("a state is given to what takes none");
        }
        nodes_[built].items.push_back(state);
        return stack_.push_back(built);
      }
      default: unsupported(fmt::format("opcode {:#04x}", opcode));
    }
  }

  [[noreturn]] void unsupported(std::string_view what) const {
    fail(Errc::Unsupported,
         "[pickle] '{}' has {} before byte {}, which plain data do not need; save it with "
         "numpy.savez",
         path_, what, size_ - rest_.size());
  }

  std::span<const std::byte> rest_;
  std::size_t size_;
  std::string_view path_;
  Pickle& out_;
  std::vector<Node>& nodes_;
  std::size_t made_bytes_ = 0;
  std::vector<Value> stack_;
  std::vector<std::size_t> marks_;  // heights of the stack
  std::unordered_map<std::uint64_t, Value> memo_;
  std::size_t held_ = 0;  // items in all lists and dicts
};

Pickle::Pickle(std::span<const std::byte> bytes, std::string_view path) {
  root_ = PickleMachine(bytes, path, *this).run();
}

const Pickle::Node* Pickle::find(const Node& dict, std::string_view key) const {
  if (dict.kind != Kind::Dict) return nullptr;
  for (std::size_t i = 0; i + 1 < dict.items.size(); i += 2) {
    if (text(nodes_[dict.items[i]]) == key) return &nodes_[dict.items[i + 1]];
  }
  return nullptr;
}

bool Pickle::is_name(const Node& node, std::string_view module, std::string_view name) const {
  return node.kind == Kind::Name && text(nodes_[node.items[0]]) == module &&
         text(nodes_[node.items[1]]) == name;
}

std::string_view Pickle::text(const Node& node) {
  if (node.kind != Kind::Text) return {};
  return {reinterpret_cast<const char*>(node.bytes.data()), node.bytes.size()};
}

}  // namespace tuckfold
