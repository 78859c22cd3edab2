#include "gpu/base/log.h"

#include <atomic>
#include <memory>
#include <utility>

#include "spdlog/pattern_formatter.h"
#include "spdlog/sinks/stdout_sinks.h"
#include "spdlog/spdlog.h"

namespace octavo {
namespace {

std::atomic<bool> g_json{false};

spdlog::level::level_enum ToSpdlog(LogLevel level) {
  switch (level) {
    case LogLevel::kDebug: return spdlog::level::debug;
    case LogLevel::kInfo: return spdlog::level::info;
    case LogLevel::kWarning: return spdlog::level::warn;
    case LogLevel::kError: return spdlog::level::err;
  }
  return spdlog::level::info;
}

spdlog::logger& Logger() {
  static const std::shared_ptr<spdlog::logger> logger = [] {
    auto made = std::make_shared<spdlog::logger>("octavo", std::make_shared<spdlog::sinks::stderr_sink_mt>());
    made->set_pattern("%H:%M:%S.%e %^%l%$ %v");
    made->flush_on(spdlog::level::debug);
    return made;
  }();
  return *logger;
}

}  // namespace

void SetUpLog(LogLevel level, bool json) {
  g_json = json;
  Logger().set_level(ToSpdlog(level));
  if (json) {
    Logger().set_formatter(
        std::make_unique<spdlog::pattern_formatter>(R"({"time":"%Y-%m-%dT%H:%M:%S.%fZ","level":"%l",%v})", spdlog::pattern_time_type::utc));
  } else {
    Logger().set_pattern("%H:%M:%S.%e %^%l%$ %v");
  }
}

void Log(LogLevel level, absl::string_view event, const nlohmann::json& fields) {
  const auto spd_level = ToSpdlog(level);
  if (!Logger().should_log(spd_level)) return;
  const std::string name(event.data(), event.size());
  constexpr auto kReplace = nlohmann::json::error_handler_t::replace;  // bytes that are no UTF-8 must not throw
  if (g_json) {
    std::string text = "\"event\":" + nlohmann::json(name).dump(-1, ' ', false, kReplace);
    for (const auto& [key, value] : fields.items()) {
      text += "," + nlohmann::json(key).dump() + ":" + value.dump(-1, ' ', false, kReplace);
    }
    Logger().log(spd_level, "{}", text);
    return;
  }
  std::string text = name;
  for (const auto& [key, value] : fields.items()) {
    text += " " + key + "=" + (value.is_string() ? value.get<std::string>() : value.dump(-1, ' ', false, kReplace));
  }
  Logger().log(spd_level, "{}", text);
}

}  // namespace octavo
