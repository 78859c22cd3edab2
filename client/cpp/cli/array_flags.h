#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "CLI/CLI.hpp"

#include "octavo/v1/volume.pb.h"

#include "client/cpp/cli/commands.h"

namespace octavo::cli {

/// The flags of `octavo volume derive` that are operations on the array: crop, resize, affine,
/// filters, projections and a threshold.
class ArrayFlags {
 public:
  explicit ArrayFlags(CLI::App* command);

  /// Adds the operations that were given, in this order: crop, resize, affine, median, Gaussian,
  /// projection, threshold. Asks the server for the names of the volume's axes if a projection
  /// needs them. Returns whether that succeeded; throws CLI::ValidationError for a value that is
  /// not allowed.
  bool Fill(Session& session, v1::DeriveVolumeRequest* request) const;

 private:
  struct Given {
    std::vector<int64_t> crop, shape;
    std::vector<double> affine;
    std::string sampling;
    uint32_t median = 0;           // 0: not given
    std::vector<double> gaussian;  // um
    std::string threshold;
    std::vector<std::string> projections;  // one for each of kProjections
  };
  std::shared_ptr<Given> given_ = std::make_shared<Given>();
};

}  // namespace octavo::cli
