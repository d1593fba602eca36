#include "cli/verbs/verbs.h"

#include <utility>

#include "base/fail.h"
#include "base/text_scan.h"

namespace tuckfold::cli {

void take_files(std::vector<std::string>& codecs, std::vector<std::string>& files) {
  std::vector<std::string> specs;
  for (std::string& text : codecs) {
    (text.ends_with(".npy") ? files : specs).push_back(std::move(text));
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
