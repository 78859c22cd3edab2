#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <type_traits>
#include <vector>

#include "CLI/CLI.hpp"
#include "google/protobuf/generated_enum_reflection.h"

// The words that flags accept, and the combinations of flags.
namespace octavo::cli {

/// A check of a flag's value: one of these words. Refuses another word and lists the allowed words
/// and the probable one.
CLI::Validator OneOf(const std::vector<std::string>& words);
/// The same, for CLI::Option::transform: replaces a word of another package by its own word.
/// `guess`: whether to suggest the probable word; not for types, because "f64" is near "c64" but
/// means another type.
CLI::Validator OneOf(const std::vector<std::string>& words,
                     const std::map<std::string, std::string>& also, bool guess);

/// A check of a flag's value: a whole number from 0 on that 64 bits hold.
CLI::Validator Natural();
/// A check of a flag's value: a whole number from `least` to `most`; most = 0: on. What is no
/// number at all is left to CLI11.
CLI::Validator WholeFrom(int64_t least, int64_t most = 0);
/// A check of a flag's value: a number above 0. What is no number at all is left to CLI11.
CLI::Validator AboveZero();
/// Natural() for all flags of whole numbers from 0 on, of a command and those below it: CLI11 takes
/// -1 for 2^64 - 1.
void CheckNaturals(CLI::App* app);

/// A check of a flag's value: seconds above 0, at most 1e6.
CLI::Validator SecondsAboveZero();
/// The same, for CLI::Option::transform: a device by its name or number: 0 becomes devices/0, and
/// host, in any case, becomes devices/host.
CLI::Validator DeviceName();

/// "a | b | c", as help texts list them.
std::string Listed(const std::vector<std::string>& words);

/// The name of an enum's value without the name of the enum: "RUNNING" for SCAN_STATE_RUNNING. The
/// number as text for a value that only a newer server knows.
std::string ShortName(const google::protobuf::EnumDescriptor& values, int number);
/// The same as people read it: "held volume" for KIND_HELD_VOLUME; empty for the value 0.
std::string InWords(const google::protobuf::EnumDescriptor& values, int number);
/// The same as one word, as flags take it: "dispersion-autofocus"; empty for the value 0.
std::string InOneWord(const google::protobuf::EnumDescriptor& values, int number);
/// The words for the values of an enum of the contract but the first, which stands for "choose":
/// "auto-commit" for DISPOSITION_AUTO_COMMIT.
std::vector<std::string> WordsOf(const google::protobuf::EnumDescriptor& values);
/// The number of the value for `word`, one of WordsOf.
int NumberOf(const google::protobuf::EnumDescriptor& values, const std::string& word);

template <class Enum>
requires std::is_enum_v<Enum> std::string ShortName(Enum value) {
  return ShortName(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}
template <class Enum>
std::string InWords(Enum value) {
  return InWords(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}
template <class Enum>
std::string InOneWord(Enum value) {
  return InOneWord(*google::protobuf::GetEnumDescriptor<Enum>(), value);
}
template <class Enum>
std::vector<std::string> WordsOf() {
  return WordsOf(*google::protobuf::GetEnumDescriptor<Enum>());
}
template <class Enum>
Enum ValueOf(const std::string& word) {
  return static_cast<Enum>(NumberOf(*google::protobuf::GetEnumDescriptor<Enum>(), word));
}

/// The keys of a map from words.
template <class Map>
std::vector<std::string> KeysOf(const Map& map) {
  std::vector<std::string> keys;
  keys.reserve(map.size());
  for (const auto& [key, value] : map) keys.push_back(key);
  return keys;
}

/// A flag that has no effect unless one of these kinds is chosen.
struct FlagOf {
  const char* flag;
  std::vector<std::string> kinds;
};
/// Refuses given flags that do not apply to `kind`; `chosen` describes the kind and its origin in
/// words: "the source is replay (--path)".
void RefuseStrangers(const CLI::App& app, const std::vector<FlagOf>& flags, const std::string& kind,
                     const std::string& chosen);

}  // namespace octavo::cli
