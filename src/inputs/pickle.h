// A reader of the few pickle opcodes that plain data use. It builds values and calls nothing: what
// Python would import or call is kept as a name with its arguments.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/io/bytes.h"

namespace tuckfold {

class Pickle {
 public:
  enum class Kind : unsigned char { None, Bool, Int, Text, List, Tuple, Dict, Name, Call };

  // Values are numbers of nodes, since pickles may share them.
  using Value = std::uint32_t;
  struct Node {
    Kind kind = Kind::None;
    std::int64_t number = 0;           // of Bool and Int
    std::span<const std::byte> bytes;  // of Text
    // Of List and Tuple; of Dict keys and values in turn; of Name, which Python would import, the
    // module and what is in it; of Call what is called, its argument tuple, and the state given to
    // the result, if any.
    std::vector<Value> items;
  };

  // Throws CorruptData where the bytes end or make no sense, Unsupported for other opcodes. `path`
  // is for messages.
  Pickle(std::span<const std::byte> bytes, std::string_view path);

  const Node& root() const { return nodes_[root_]; }
  const Node& operator[](Value value) const { return nodes_[value]; }

  // The value of a dict under a key of text; null where there is none, or no dict.
  const Node* find(const Node& dict, std::string_view key) const;

  // Whether a node is this name: "numpy" and "dtype".
  bool is_name(const Node& node, std::string_view module, std::string_view name) const;

  // The text of a node, empty for other kinds.
  static std::string_view text(const Node& node);

  // The buffers of texts that are not part of the given bytes. Keep them as long as the texts are used.
  const std::vector<std::shared_ptr<const Bytes>>& made() const noexcept { return made_; }

 private:
  friend class PickleMachine;
  std::vector<Node> nodes_;
  std::vector<std::shared_ptr<const Bytes>> made_;
  Value root_ = 0;
};

}  // namespace tuckfold
