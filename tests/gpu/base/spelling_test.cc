#include "gpu/base/spelling.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "gtest/gtest.h"

#include "tests/support/seed.h"

namespace octavo {
namespace {

const std::vector<std::string> kCommands = {"scan",   "volume", "job",     "recon",
                                            "watch",  "camera", "info",    "devices",
                                            "health", "memory", "sessions"};

TEST(NearestWord, FindsWhatWasMeant) {
  EXPECT_EQ(NearestWord("scna", kCommands), "scan");
  EXPECT_EQ(NearestWord("scans", kCommands), "scan");
  EXPECT_EQ(NearestWord("volumes", kCommands), "volume");
  EXPECT_EQ(NearestWord("vol", kCommands), "volume");
  EXPECT_EQ(NearestWord("reconstruct", kCommands), "recon");
  EXPECT_EQ(NearestWord("hanning", {"rect", "hann", "hamming"}), "hann");
  EXPECT_EQ(NearestWord("--ascan", {"--bscans", "--ascans"}), "--ascans");
}

TEST(NearestWord, GuessesNothingWhereNothingIsNear) {
  EXPECT_EQ(NearestWord("nonsense", kCommands), "");
  EXPECT_EQ(NearestWord("x", kCommands), "");
  EXPECT_EQ(NearestWord("", kCommands), "");
  EXPECT_EQ(NearestWord("scan", {}), "");
  EXPECT_EQ(DidYouMean("nonsense", kCommands), "");
  EXPECT_EQ(DidYouMean("helth", kCommands), "; did you mean health?");
}

TEST(NearestWord, OneSlipOfTheFingersIsAlwaysFound) {
  std::mt19937 random(testing::FreshSeed());
  const auto below = [&](size_t n) {
    return std::uniform_int_distribution<size_t>(0, n - 1)(random);
  };
  for (int i = 0; i < 2000; ++i) {
    const std::string& word = kCommands[below(kCommands.size())];
    std::string text = word;
    const size_t at = below(text.size());
    switch (below(4)) {
      case 0: text.insert(at, 1, static_cast<char>('a' + below(26))); break;
      case 1: text.erase(at, 1); break;
      case 2: text[at] = static_cast<char>('a' + below(26)); break;
      default:
        if (at + 1 < text.size()) std::swap(text[at], text[at + 1]);
    }
    EXPECT_EQ(NearestWord(text, kCommands), word) << text;
  }
}

}  // namespace
}  // namespace octavo
