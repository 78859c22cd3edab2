#include "server/storage/projections/hdf5_probe_wire.h"

#include <utility>
#include <vector>

#include "nlohmann/json.hpp"

#include "gpu/base/json.h"
#include "gpu/base/status.h"

namespace octavo::storage {
namespace {

using Json = nlohmann::json;

// CBOR: names of files are bytes, which JSON has no room for.
std::string Bytes(const Json& json) {
  std::string out;
  Json::to_cbor(json, nlohmann::detail::output_adapter<char>(out));
  return out;
}

}  // namespace

std::string EncodeRequest(const ProbeRequest& request) {
  const ProjectionOptions& o = request.options;
  return Bytes({{"path", request.path},
                {"format", o.format},
                {"projections", o.projections},
                {"flats", o.flats},
                {"darks", o.darks},
                {"angles", o.angles},
                {"angle_values", o.angle_values},
                {"angle_unit", static_cast<int>(o.angle_unit)},
                {"roots", request.volume.has_value() ? request.volume->roots : o.roots},
                {"flat_positions", o.flat_positions},
                {"dark_positions", o.dark_positions},
                {"volume", request.volume.has_value()},
                {"dataset", request.volume.has_value() ? request.volume->dataset : ""},
                {"processor_seconds", request.processor_seconds},
                {"memory_bytes", request.memory_bytes}});
}

std::optional<ProbeRequest> DecodeRequest(const std::string& bytes) try {
  const auto parsed =
      ParseCbor(bytes, {.bytes = size_t{1} << 30,
                        .depth = 4,
                        .values = size_t{1} << 27});  // an angle for each projection
  if (!parsed.ok()) return std::nullopt;
  const Json& json = *parsed;
  ProbeRequest request;
  ProjectionOptions& o = request.options;
  json.at("path").get_to(request.path);
  json.at("format").get_to(o.format);
  json.at("projections").get_to(o.projections);
  json.at("flats").get_to(o.flats);
  json.at("darks").get_to(o.darks);
  json.at("angles").get_to(o.angles);
  json.at("angle_values").get_to(o.angle_values);
  o.angle_unit = static_cast<AngleUnit>(json.at("angle_unit").get<int>());
  json.at("roots").get_to(o.roots);
  json.at("flat_positions").get_to(o.flat_positions);
  json.at("dark_positions").get_to(o.dark_positions);
  if (json.at("volume").get<bool>())
    request.volume =
        Hdf5VolumeRequest{.dataset = json.at("dataset").get<std::string>(), .roots = o.roots};
  json.at("processor_seconds").get_to(request.processor_seconds);
  json.at("memory_bytes").get_to(request.memory_bytes);
  return request;
} catch (const Json::exception&) {
  return std::nullopt;
}

std::string EncodeAnswer(const absl::Status& status) {
  const ErrorInfo info = InfoOf(status);
  return Bytes({{"code", static_cast<int>(status.code())},
                {"message", std::string(status.message())},
                {"reason", Name(info.reason)},
                {"field", info.field},
                {"numbers", info.numbers}});
}

// Parses an answer without trust: a hostile file may control the process that wrote it.
std::optional<absl::Status> DecodeAnswer(const std::string& bytes) try {
  const auto parsed = ParseCbor(bytes, {.depth = 4});
  if (!parsed.ok()) return std::nullopt;
  const Json& json = *parsed;
  ErrorInfo info;
  info.reason = ReasonNamed(json.at("reason").get<std::string>()).value_or(Reason::kNone);
  json.at("field").get_to(info.field);
  json.at("numbers").get_to(info.numbers);
  return WithInfo(absl::Status(static_cast<absl::StatusCode>(json.at("code").get<int>()),
                               json.at("message").get<std::string>()),
                  info);
} catch (const Json::exception&) {
  return std::nullopt;
}

}  // namespace octavo::storage
