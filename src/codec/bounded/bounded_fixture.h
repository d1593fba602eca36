// Values whose codes give rows of every form, for tests of bounded.
#pragma once

#include <algorithm>
#include <cstdint>
#include <random>
#include <string>
#include <vector>

namespace tuckfold::ref {

// A chunk of whole numbers. With abs=0.5 they are their own codes.
struct SteppedValues {
  std::string name;
  std::vector<double> values;
};

// Differences whose zigzag numbers have up to 1 … 9 bits, from nearly none to all of them.
inline std::vector<SteppedValues> stepped_values() {
  std::vector<SteppedValues> all;
  std::mt19937 random(17);
  for (unsigned bits = 1; bits <= 9; ++bits) {
    for (const unsigned every : {500u, 100u, 20u, 4u, 1u}) {
      SteppedValues stepped{std::to_string(bits) + " bits, one of " + std::to_string(every), {}};
      double value = 3000;
      for (unsigned i = 0; i < 1024; ++i) {
        const unsigned most = (1u << bits) - 1;
        const auto drawn = static_cast<unsigned>(random());
        const unsigned number = i == 77 ? most : random() % every == 0 ? drawn & most : 0;
        value += number % 2 == 0 ? number / 2.0 : -0.5 * (number + 1.0);
        stepped.values.push_back(value);
      }
      all.push_back(stepped);
    }
  }
  return all;
}

}  // namespace tuckfold::ref
