#include "gpu/base/log.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include "absl/strings/str_cat.h"
#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

#include "gpu/base/last_words.h"

namespace octavo::inline gpu {
namespace {

std::atomic<bool> g_json{false};

std::atomic<const char*> g_last_words{nullptr};
std::atomic<size_t> g_last_words_size{0};

constexpr char kJsonPattern[] = R"(%*{"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})";
constexpr char kTextPattern[] = "%*%H:%M:%S.%e %^%l%$ %v";

// Whether stderr is a stream of systemd's journal. The journal names its stream in the environment
// variable JOURNAL_STREAM.
bool StderrIsTheJournals() {
  static const bool is = [] {
    const char* stream = std::getenv("JOURNAL_STREAM");
    struct stat file {};
    return stream != nullptr && ::fstat(STDERR_FILENO, &file) == 0 &&
           absl::StrCat(file.st_dev, ":", file.st_ino) == stream;
  }();
  return is;
}

// The prefix of a line that the journal reads as its priority (sd-daemon(3)).
const char* Priority(spdlog::level::level_enum level) {
  return !StderrIsTheJournals()         ? ""
         : level >= spdlog::level::err  ? "<3>"
         : level == spdlog::level::warn ? "<4>"
         : level == spdlog::level::info ? "<6>"
                                        : "<7>";
}

class PriorityFlag final : public spdlog::custom_flag_formatter {
 public:
  void format(const spdlog::details::log_msg& record, const std::tm&,
              spdlog::memory_buf_t& out) override {
    const absl::string_view text = Priority(record.level);
    out.append(text.data(), text.data() + text.size());
  }
  std::unique_ptr<custom_flag_formatter> clone() const override {
    return std::make_unique<PriorityFlag>();
  }
};

std::unique_ptr<spdlog::formatter> Formatter(bool json) {
  auto made = std::make_unique<spdlog::pattern_formatter>(json ? spdlog::pattern_time_type::utc
                                                               : spdlog::pattern_time_type::local);
  made->add_flag<PriorityFlag>('*').set_pattern(json ? kJsonPattern : kTextPattern);
  return made;
}

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

// A character at the start of a text.
struct Character {
  size_t bytes = 1;
  uint32_t code = 0;
  bool valid = false;
};

Character FirstOf(absl::string_view text) {
  const auto byte = [&](size_t i) {
    return static_cast<uint32_t>(static_cast<unsigned char>(text[i]));
  };
  const uint32_t first = byte(0);
  if (first < 0x80) return {.bytes = 1, .code = first, .valid = true};
  const size_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return {};
  uint32_t code = first & (0xFFU >> (bytes + 1));
  for (size_t i = 1; i < bytes; ++i) {
    if ((byte(i) & 0xC0U) != 0x80) return {};
    code = code << 6U | (byte(i) & 0x3FU);
  }
  const uint32_t least = bytes == 4 ? 0x10000 : bytes == 3 ? 0x800 : 0x80;
  if (code < least || code > 0x10FFFF || (code >= 0xD800 && code <= 0xDFFF)) return {};
  return {.bytes = bytes, .code = code, .valid = true};
}

// Whether a character ends lines, moves the cursor, or changes the direction of what follows.
bool Controls(uint32_t code) {
  return code < 0x20 || (code >= 0x7F && code <= 0x9F) || (code >= 0x200E && code <= 0x200F) ||
         (code >= 0x2028 && code <= 0x202E) || (code >= 0x2066 && code <= 0x2069);
}

// Whether a text needs no quotes to be distinguished from its surroundings.
bool IsPlain(const std::string& text) {
  for (size_t i = 0; i < text.size();) {
    const Character next = FirstOf(absl::string_view(text).substr(i));
    if (!next.valid || Controls(next.code) || next.code == ' ' || next.code == '"' ||
        next.code == '=')
      return false;
    i += next.bytes;
  }
  return !text.empty();
}

// The value as JSON, in which nothing controls a terminal: JSON itself escapes only the ASCII ones.
std::string Dumped(const nlohmann::json& value) {
  constexpr auto kReplace =
      nlohmann::json::error_handler_t::replace;  // bytes that are not UTF-8 must not throw
  const std::string text = value.dump(-1, ' ', false, kReplace);
  std::string out;
  out.reserve(text.size());
  for (size_t i = 0; i < text.size();) {
    const Character next = FirstOf(absl::string_view(text).substr(i));
    if (next.valid && Controls(next.code))
      absl::StrAppend(&out, "\\u", absl::Hex(next.code, absl::kZeroPad4));
    else
      out.append(text, i, next.bytes);
    i += next.bytes;
  }
  return out;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("octavo",
                                                 std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_formatter(Formatter(false));
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetUpLog(LogLevel level, bool json) {
  g_json = json;
  Logger().set_level(ToSpdlog(level));
  Logger().set_formatter(Formatter(json));
}

void Log(LogLevel level, absl::string_view event, const nlohmann::json& fields) {
  const auto spd_level = ToSpdlog(level);
  if (!Logger().should_log(spd_level)) return;
  const std::string name(event.data(), event.size());
  if (g_json) {
    std::string text = "\"event\":" + Dumped(name);
    for (const auto& [key, value] : fields.items()) {
      text += "," + Dumped(key) + ":" + Dumped(value);
    }
    Logger().log(spd_level, "{}", text);
    return;
  }
  std::string text = name;
  for (const auto& [key, value] : fields.items()) {
    text += " " + key + "=" +
            (value.is_string() && IsPlain(value.get<std::string>()) ? value.get<std::string>()
                                                                    : Dumped(value));
  }
  Logger().log(spd_level, "{}", text);
}

const char* ErrorPriority() { return Priority(spdlog::level::err); }

void PrepareLastWords(absl::string_view event, double seconds) {
  // The handler reads it, so it is written before the handler is installed, and afterwards only
  // while no alarm is pending. Never destroyed: the process may hang while its statics are.
  static std::string& text = *new std::string;
  const std::string name(event.data(), event.size());
  const std::string what = g_json ? "\"event\":" + nlohmann::json(name).dump() : name;
  spdlog::details::log_msg record("octavo", spdlog::level::err, what);
  record.time += std::chrono::duration_cast<spdlog::log_clock::duration>(
      std::chrono::duration<double>(seconds));
  spdlog::memory_buf_t line;
  Formatter(g_json)->format(record, line);
  text.assign(line.data(), line.size());
  g_last_words = text.data();
  g_last_words_size = text.size();
}

void SayLastWords() {
  if (const char* text = g_last_words; text != nullptr) {
    [[maybe_unused]] const ssize_t ignored = ::write(STDERR_FILENO, text, g_last_words_size);
  }
}

}  // namespace octavo::inline gpu
