#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "server/model/buffer_types.h"
#include "server/model/projection_spec.h"
#include "server/model/scan_spec.h"
#include "server/model/tomography_spec.h"
#include "server/model/volume_operation.h"
#include "server/storage/formats/input_volume.h"
#include "server/storage/formats/volume_input.h"

// A client's specification of a job in plain types: the server's counterpart of octavo.v1.JobSpec.
// 0 and empty mean "choose".
namespace octavo::model {

/// All fields as in octavo.v1.ReprocessJob.
struct ReprocessSpec {
  std::string volume;
  Processing processing;
  std::vector<VolumeOperation> operations;           // on the reprocessed volume
  std::vector<std::string> encoded_operations = {};  // as received, for answers
};

/// All fields as in octavo.v1.DispersionAutofocusJob.
struct DispersionAutofocusSpec {
  std::string volume;
  Processing processing;
  bool processing_given = true;  // else that of the scan
  double a2_begin = 0, a2_end = 0, a3_begin = 0, a3_end = 0;
  bool only_a2 = false;
  int64_t ascans = 0, bins = 0;
  std::optional<int64_t> first_bin;
  bool reprocess = false;
};

/// All fields as in octavo.v1.KCalibrationJob.
struct KCalibrationSpec {
  std::string volume;
  int64_t first_record = 0, records = 0;
  Processing processing;
  bool processing_given = true;  // else that of the scan
  int64_t least_bin = 0, polynomial_degree = 0;
  std::optional<double> edge;
};

/// All fields as in octavo.v1.ImportJob.
struct ImportSpec {
  std::string path;                    // relative to a replay root, or absolute inside of one
  std::string deposit;                 // or the ticket of a file that a client has handed over
  storage::VolumeInputOptions input;   // without the roots, which are the server's
  storage::InputVolumeOptions volume;  // `array` if a buffer is wanted
  bool is_private = false;             // of that buffer
  std::string encoded;                 // as received, for answers
  std::string json;                    // the same for people, for the files of its volume
};

/// All fields as in octavo.v1.DispersionEstimate.
struct DispersionEstimate {
  double a2 = 0, a3 = 0, sharpness = 0, sharpness_before = 0;
  int64_t evaluations = 0;
};

/// All fields as in octavo.v1.KLinearisationEstimate.
struct KLinearisationEstimate {
  std::vector<double> index, polynomial;
  double residual_rms_rad = 0, peak_bin = 0, nonlinearity_samples = 0;
};

struct JobSpec {
  std::string request_id;
  // Digest of the request body: distinguishes a retry from another request with the same id.
  std::string request_digest;
  std::string title;
  std::map<std::string, std::string> labels;
  int priority = 0;
  std::string device;  // "", "auto", "devices/<n>", "devices/host"
  std::string group;
  std::string session;  // sessions/<id> of the client; empty = none
  Orphan orphan = Orphan::kDefault;
  double ttl_seconds = 0;
  std::optional<Tier> results = std::nullopt;          // where its volumes go; none: they stay
  std::optional<CommitOptions> commit = std::nullopt;  // its volumes are committed so
  Caller caller;  // who submitted it: owns it and what it makes
  std::variant<std::monostate, ReprocessSpec, DispersionAutofocusSpec, KCalibrationSpec,
               TomographySpec, ImportSpec, ProjectionSpec>
      work;
};

}  // namespace octavo::model
