#include "server/tomography/row_preparer.h"

#include "gpu/base/status.h"
#include "server/tomography/loader.h"
#include "server/tomography/synchronise_at_end.h"

namespace octavo::tomography {

absl::StatusOr<PreparedRows> RowPreparer::Prepare(const TomographyLayout& layout,
                                                  std::shared_ptr<storage::ProjectionInput> input,
                                                  const BatchRows& rows, bool for_overlap) {
  const PrepareConfig config = layout.PrepareFor(rows, for_overlap);
  OCTAVO_ASSIGN_OR_RETURN(const int64_t bytes, Preparer::DeviceBytes(config, run_.device()));
  OCTAVO_ASSIGN_OR_RETURN(const auto loader,
                          TomographyLoader::Start(run_, layout, std::move(input),
                                                  {{.first = 0, .count = 1, .rows = rows}},
                                                  layout.RawBytes(rows), layout.FieldBytes(rows)));
  absl::StatusOr<PreparedRows> prepared;
  if (const absl::Status charged = run_.Charge(bytes); charged.ok()) {
    prepared = PrepareFrom(*loader, config);
    run_.Discharge(bytes);
  } else {
    prepared = charged;
  }
  loader->Free(run_);
  return prepared;
}

absl::StatusOr<PreparedRows> RowPreparer::PrepareFrom(TomographyLoader& loader,
                                                      const PrepareConfig& config) {
  OCTAVO_ASSIGN_OR_RETURN(const auto preparer, Preparer::Create(config, run_.device()));
  OCTAVO_ASSIGN_OR_RETURN(void* const data, run_.Allocate(preparer->shape().elements() * 4));
  PreparedRows rows{.data = static_cast<float*>(data), .shape = preparer->shape(), .counts = {}};
  const absl::Status made = [&]() -> absl::Status {
    const SynchroniseAtEnd over(run_.stream());
    OCTAVO_ASSIGN_OR_RETURN(PrepareInput raw, loader.Next(stop_));
    raw.goes_on = Until(stop_);
    OCTAVO_RETURN_IF_ERROR(
        preparer->Run(run_.stream(), raw, {rows.data, preparer->shape().elements()}));
    OCTAVO_ASSIGN_OR_RETURN(rows.counts, preparer->Counts(run_.stream()));
    return absl::OkStatus();
  }();
  if (made.ok()) return rows;
  run_.Free(data);
  return made;
}

}  // namespace octavo::tomography
