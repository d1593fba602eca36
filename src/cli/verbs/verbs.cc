#include "cli/verbs/verbs.h"

#include <filesystem>
#include <utility>

#include "base/fail.h"
#include "base/text_scan.h"
#include "tuckfold/codec.h"

namespace tuckfold::cli {

void take_files(std::vector<std::string>& codecs, std::vector<std::string>& files) {
  const auto is_spec = [](const std::string& text) {
    try {
      CodecSpec::parse(text);
    } catch (const Error&) {
      return false;
    }
    return true;
  };
  std::vector<std::string> specs;
  for (std::string& text : codecs) {
    std::error_code unreadable;
    const bool is_file = text.ends_with(".npy") || text == "-" ||
                         (std::filesystem::exists(text, unreadable) && !is_spec(text));
    (is_file ? files : specs).push_back(std::move(text));
  }
  codecs = std::move(specs);
}

std::string unknown_text(std::string_view kind, std::string_view word,
                         std::span<const std::string_view> candidates) {
  const std::string_view nearest = nearest_word(word, candidates);
  return fmt::format("unknown {} {}; ", kind, quoted(word)) +
         (nearest.empty() ? fmt::format("there are: {}", fmt::join(candidates, ", "))
                          : fmt::format("did you mean '{}'?", nearest));
}

}  // namespace tuckfold::cli
