#include "gpu/base/json.h"

#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace octavo::inline gpu {
namespace {

using nlohmann::json;

/// Builds each value when the parser reports it. The parser itself keeps one bit per level of
/// nesting, and it ends at the first event that a handler refuses.
class Builder final : public nlohmann::json_sax<json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return Put(nullptr) != nullptr; }
  bool boolean(bool value) override { return Put(value) != nullptr; }
  bool number_integer(number_integer_t value) override { return Put(value) != nullptr; }
  bool number_unsigned(number_unsigned_t value) override { return Put(value) != nullptr; }
  bool number_float(number_float_t value, const string_t& /*digits*/) override {
    return Put(value) != nullptr;
  }
  bool string(string_t& value) override { return Put(std::move(value)) != nullptr; }
  bool binary(binary_t& /*value*/) override { return false; }  // JSON text has no binary values
  bool start_object(size_t /*unknown*/) override { return Open(json::object()); }
  bool start_array(size_t /*unknown*/) override { return Open(json::array()); }
  bool end_object() override { return Close(); }
  bool end_array() override { return Close(); }
  bool key(string_t& name) override {
    const auto [member, fresh] =
        open_.back()->get_ref<json::object_t&>().emplace(std::move(name), nullptr);
    if (!fresh) return Refuse(absl::StrCat("names the member '", member->first, "' twice"));
    member_ = &member->second;
    return true;
  }
  bool parse_error(size_t position, const std::string& token,
                   const nlohmann::detail::exception& /*what*/) override {
    // The parser's own message names its grammar rules, not the place in the file.
    return Refuse(absl::StrCat("is no JSON: byte ", position, " is unexpected",
                               token.empty() ? "" : ", after '", token.substr(0, 40),
                               token.empty() ? "" : "'"));
  }

  absl::StatusOr<json> Result() && {
    if (!refused_.empty()) return absl::InvalidArgumentError(refused_);
    return std::move(root_);
  }

 private:
  bool Refuse(std::string why) {
    refused_ = std::move(why);
    return false;
  }

  template <class Value>
  json* Put(Value&& value) {
    if (++values_ > limits_.values) {
      Refuse(absl::StrCat("holds more than ", limits_.values, " values"));
      return nullptr;
    }
    if (open_.empty()) {
      root_ = json(std::forward<Value>(value));
      return &root_;
    }
    if (open_.back()->is_array()) return &open_.back()->emplace_back(std::forward<Value>(value));
    *member_ = json(std::forward<Value>(value));
    return member_;
  }

  bool Open(json empty) {
    if (open_.size() >= limits_.depth)
      return Refuse(
          absl::StrCat("holds arrays or objects more than ", limits_.depth, " deep in each other"));
    json* const value = Put(std::move(empty));
    if (value == nullptr) return false;
    open_.push_back(value);
    return true;
  }
  bool Close() {
    open_.pop_back();
    return true;
  }

  const JsonLimits& limits_;
  json root_;
  std::vector<json*> open_;  // from the root down; pointers into an array stay valid, because an
                             // array does not grow while one of its elements is open
  json* member_ = nullptr;   // the member whose name was read last
  size_t values_ = 0;
  std::string refused_;
};

}  // namespace

absl::StatusOr<nlohmann::json> ParseJson(absl::string_view text, const JsonLimits& limits) {
  if (text.size() > limits.bytes)
    return absl::InvalidArgumentError(
        absl::StrCat("has ", text.size(), " bytes; allowed at most ", limits.bytes));
  // The parser takes NUL as the end of the text and ignores what follows.
  if (const size_t nul = text.find('\0'); nul != absl::string_view::npos)
    return absl::InvalidArgumentError(absl::StrCat("is no JSON: byte ", nul + 1, " is NUL"));
  Builder builder(limits);
  (void)json::sax_parse(text.begin(), text.end(), &builder);
  return std::move(builder).Result();
}

absl::StatusOr<nlohmann::json> ParseCbor(absl::string_view bytes, const JsonLimits& limits) {
  if (bytes.size() > limits.bytes)
    return absl::InvalidArgumentError(
        absl::StrCat("has ", bytes.size(), " bytes; allowed at most ", limits.bytes));
  Builder builder(limits);
  (void)json::sax_parse(bytes.begin(), bytes.end(), &builder, json::input_format_t::cbor);
  return std::move(builder).Result();
}

}  // namespace octavo::inline gpu
