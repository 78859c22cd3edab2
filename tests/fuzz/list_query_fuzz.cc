// A list's request: filter, order and page of any row that the contract lists. The first byte
// chooses the request, the next two the page's size; then, each up to a zero: the filter, the
// order, the page's token; the rest is a row.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "google/protobuf/message.h"

#include "octavo/v1/buffer.pb.h"
#include "octavo/v1/export.pb.h"
#include "octavo/v1/ingest.pb.h"
#include "octavo/v1/job.pb.h"
#include "octavo/v1/operation.pb.h"
#include "octavo/v1/scan.pb.h"
#include "octavo/v1/session.pb.h"
#include "octavo/v1/system.pb.h"
#include "octavo/v1/volume.pb.h"

#include "gpu/base/status.h"
#include "server/rpc/list/list_query.h"
#include "server/rpc/list/page.h"
#include "server/rpc/list/page_token.h"
#include "tests/fuzz/fuzz_input.h"

namespace octavo::rpc {
namespace {

using fuzz::Input;
using fuzz::Require;
using google::protobuf::Message;

/// As the services call ListQuery::Parse.
struct List {
  const Message* request;
  const Message* row;
  const char* key = "name";
  const char* usual_order = "";
};

template <class Request, class Row>
List Of(const char* key = "name", const char* usual_order = "") {
  return {&Request::default_instance(), &Row::default_instance(), key, usual_order};
}

const std::vector<List>& Lists() {
  static const auto& lists = *new std::vector<List>{
      Of<v1::ListScansRequest, v1::Scan>(),
      Of<v1::ListVolumesRequest, v1::Volume>(),
      Of<v1::ListJobsRequest, v1::Job>(),
      Of<v1::ListBuffersRequest, v1::Buffer>(),
      Of<v1::ListExportsRequest, v1::ExportStatus>(),
      Of<v1::ListOperationsRequest, v1::Operation>(),
      Of<v1::ListSessionsRequest, v1::ClientSession>(),
      Of<v1::ListLeasesRequest, v1::LeaseGrant>("fence", "resource, fence"),
      Of<v1::ListDevicesRequest, v1::DeviceStatus>(),
      Of<v1::ListCamerasRequest, v1::CameraInfo>("id", "id"),
  };
  return lists;
}

void SetText(Message* request, const char* field, absl::string_view text) {
  request->GetReflection()->SetString(request, request->GetDescriptor()->FindFieldByName(field),
                                      std::string(text));
}

void CheckError(const absl::Status& status) {
  const std::string field = InfoOf(status).field;
  Require(absl::IsInvalidArgument(status) && !status.message().empty());
  Require(field == "filter" || field == "order_by" || field == "page_size" ||
          field == "page_token");
}

void Run(Input input) {
  const List& list = Lists()[input.Byte() % Lists().size()];
  const std::unique_ptr<Message> request(list.request->New());
  request->GetReflection()->SetInt32(request.get(),
                                     request->GetDescriptor()->FindFieldByName("page_size"),
                                     input.Number<int16_t>());
  const absl::string_view filter = input.Until('\0'), order = input.Until('\0'),
                          token = input.Until('\0'), bytes = input.Rest();
  SetText(request.get(), "filter", filter);
  SetText(request.get(), "order_by", order);
  SetText(request.get(), "page_token", token);
  const std::unique_ptr<Message> row(list.row->New()), other(list.row->New());
  if (!row->ParseFromArray(bytes.data(), static_cast<int>(bytes.size()))) row->Clear();

  auto query = ListQuery::Parse(*request, *list.row->GetDescriptor(), list.key, list.usual_order);
  if (!query.ok()) {
    CheckError(query.status());
    SetText(request.get(), "page_token", "");  // this process has made no other
    query = ListQuery::Parse(*request, *list.row->GetDescriptor(), list.key, list.usual_order);
    if (!query.ok()) return CheckError(query.status());
  }
  Require(query->page_size() >= 1 && query->page_size() <= size_t{ListQuery::kMostRows});
  const bool of_row = query->filter().Matches(*row), of_other = query->filter().Matches(*other);
  if (query->filter().empty()) Require(of_row && of_other);

  // The same filter, the other way round. Its own depth and number of tests are bounded.
  const auto turned = Filter::Parse(*list.row->GetDescriptor(), absl::StrCat("NOT (", filter, ")"));
  if (turned.ok() && !query->filter().empty()) {
    Require(turned->Matches(*row) != of_row && turned->Matches(*other) != of_other);
  }
  // A filter that wants a text of the key matches no row without it.
  const std::string wanted = query->filter().Wanted(list.key);
  if (!wanted.empty()) Require(!of_other);

  std::string key = KeyOfRank(-5);
  if (query->order().has_value()) {
    key = query->order()->KeyOf(*row);
    Require(key == query->order()->KeyOf(*row));
  }
  const std::string next = query->TokenAfter(key);
  if (next.size() > kMostPageTokenBytes) Require(false);
  SetText(request.get(), "page_token", next);
  const auto page =
      ListQuery::Parse(*request, *list.row->GetDescriptor(), list.key, list.usual_order);
  Require(page.ok());
  if (page->order().has_value()) {
    Require(page->after_key() == key);
  } else {
    Require(page->after_rank() == -5);
  }
  // The token is of this filter alone.
  SetText(request.get(), "filter", absl::StrCat(filter, " "));
  const auto foreign =
      ListQuery::Parse(*request, *list.row->GetDescriptor(), list.key, list.usual_order);
  Require(!foreign.ok());
  CheckError(foreign.status());
}

}  // namespace
}  // namespace octavo::rpc

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size > 1 << 16) return 0;
  octavo::rpc::Run({data, size});
  return 0;
}
