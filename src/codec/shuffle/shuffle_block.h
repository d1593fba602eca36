// The arithmetic of shuffle: a value as an unsigned word, less what its neighbours predict. This is
// the definition of its bytes. Sums and differences wrap around, so every word comes back.
#pragma once

#include <cstdint>

namespace tuckfold::shuffle {

// What a word is compared with, in the order of the parameter's words.
enum class Delta : unsigned char {
  None,
  Sub,    // the value before it
  Xor,    // the same, by exclusive or
  Rows,   // the value above it, in the row before
  Plane,  // the value before it and the difference of the two above
};

// Neighbours of a word in its plane; 0 where there are none. In the first row of a plane Rows and
// Plane do as Sub does.
template <class Word>
struct Neighbours {
  Word left = 0, up = 0, corner = 0;  // corner: above the left one
};

template <class Word>
Word predicted(Delta delta, bool first_row, const Neighbours<Word>& near) {
  switch (delta) {
    case Delta::None: return 0;
    case Delta::Sub:
    case Delta::Xor: return near.left;
    case Delta::Rows: return first_row ? near.left : near.up;
    case Delta::Plane: break;
  }
  return first_row ? near.left : static_cast<Word>(near.left + near.up - near.corner);
}

template <class Word>
Word residual(Delta delta, Word value, Word prediction) {
  return delta == Delta::Xor ? static_cast<Word>(value ^ prediction)
                             : static_cast<Word>(value - prediction);
}

template <class Word>
Word restored(Delta delta, Word residual, Word prediction) {
  return delta == Delta::Xor ? static_cast<Word>(residual ^ prediction)
                             : static_cast<Word>(residual + prediction);
}

}  // namespace tuckfold::shuffle
