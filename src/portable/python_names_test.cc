// Names of Python files. tests/python/portable/test_names.py asks Python itself.
#include "portable/python_names.h"

#include <gtest/gtest.h>

#include <sstream>
#include <string>

#include "portable/vendor.h"

namespace tuckfold::portable {
namespace {

TEST(PythonNames, ModulesAreKnown) {
  for (const char* name : {"__future__",
                           "_weakrefset",
                           "abc",
                           "code",
                           "codecs",
                           "distutils",
                           "dummy_threading",
                           "os",
                           "symbol",
                           "test",
                           "tomllib",
                           "zoneinfo",
                           "torch",
                           "numpy",
                           "onnx",
                           "onnxruntime",
                           "tuckfold",
                           "typing_extensions",
                           "poptorch",
                           "sambaflow",
                           "cerebras_pytorch",
                           "groqflow"}) {
    EXPECT_TRUE(is_known_module(name)) << name;
  }
  for (const char* name : {"codec", "my_codec", "Torch", "torch_codec", "", "zzz", "__"}) {
    EXPECT_FALSE(is_known_module(name)) << name;
  }
}

// What files of each target import, SDKs included.
TEST(PythonNames, ImportsOfFilesAreKnown) {
  for (std::size_t i = 0; i < kTargets.size(); ++i) {
    const auto target = static_cast<Target>(i);
    if (target == Target::Onnx) continue;
    std::istringstream lines(sdk_imports(target));
    int seen = 0;
    for (std::string line, word, name; std::getline(lines, line);) {
      std::istringstream words(line);
      if (!(words >> word >> name) || (word != "import" && word != "from")) continue;
      EXPECT_TRUE(is_known_module(name.substr(0, name.find('.')))) << line;
      ++seen;
    }
    EXPECT_GE(seen, target == Target::Torch ? 1 : 2) << kTargets[i];
  }
}

TEST(PythonNames, IdentifiersThatAreNoKeywordsCanBeImported) {
  for (const char* name : {"codec", "_", "_3", "k4", "größe", "match", "type", "__init__"}) {
    EXPECT_TRUE(can_be_imported(name)) << name;
  }
  for (const char* name :
       {"", "3", "4k", "my-codec", "my codec", "my.codec", "class", "None", "async", "__main__"}) {
    EXPECT_FALSE(can_be_imported(name)) << name;
  }
}

TEST(PythonNames, TheNameThatIsProposedIsGood) {
  EXPECT_EQ(importable_name("my-codec"), "my_codec");
  EXPECT_EQ(importable_name("my.codec v2"), "my_codec_v2");
  EXPECT_EQ(importable_name("3"), "codec_3");
  EXPECT_EQ(importable_name("class"), "class_codec");
  EXPECT_EQ(importable_name("__future__"), "__future___codec");
  EXPECT_EQ(importable_name("typing-extensions"), "typing_extensions_codec");
  EXPECT_EQ(importable_name("codec"), "codec");
  for (const char* name : {"", "-", "__main__", "not", "os", "1", "a b", "..", "é-é"}) {
    const std::string proposed = importable_name(name);
    EXPECT_TRUE(can_be_imported(proposed)) << proposed;
    EXPECT_FALSE(is_known_module(proposed)) << proposed;
  }
}

}  // namespace
}  // namespace tuckfold::portable
