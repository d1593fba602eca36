// Protocol Buffers' wire format, as much of it as writing takes: fields are numbers, texts, or
// messages within messages.
//
//   Message node;
//   node.text(4, "MatMul");
//   graph.message(1, node);
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace tuckfold::portable {

class Message {
 public:
  void number(int field, std::uint64_t value) {
    varint(static_cast<std::uint64_t>(field) << 3);
    varint(value);
  }
  void text(int field, std::string_view bytes) {
    varint(static_cast<std::uint64_t>(field) << 3 | 2);
    varint(bytes.size());
    bytes_ += bytes;
  }
  void message(int field, const Message& part) { text(field, part.bytes_); }
  const std::string& bytes() const { return bytes_; }

 private:
  void varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  std::string bytes_;
};

}  // namespace tuckfold::portable
