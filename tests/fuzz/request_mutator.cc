// How libFuzzer changes the inputs of request_fuzz: half of the times some field of the message,
// wherever it lies; else bytes, as of any other target.

#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/message.h"

#include "tests/fuzz/request_types.h"

extern "C" size_t LLVMFuzzerMutate(uint8_t* data, size_t size, size_t most);

namespace octavo::fuzz {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;

class Mutator {
 public:
  explicit Mutator(uint32_t seed) : random_(seed) {}

  /// Another type, or some fields of this one.
  const Message& Choose(const Message& now) {
    if (Below(50) != 0) return now;
    return *std::next(Requests().begin(), Below(static_cast<int>(Requests().size())))->second;
  }
  void Change(Message* message, int depth = 0) {
    const auto* type = message->GetDescriptor();
    if (type->field_count() == 0) return;
    const FieldDescriptor* field = type->field(Below(type->field_count()));
    // Rather a field that is there: what lies deep is reached from there.
    std::vector<const FieldDescriptor*> set;
    message->GetReflection()->ListFields(*message, &set);
    if (!set.empty() && Below(3) != 0)
      field = set[static_cast<size_t>(Below(static_cast<int>(set.size())))];
    const auto* reflection = message->GetReflection();
    const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (Below(12) == 0) {
      reflection->ClearField(message, field);
    } else if (field->is_repeated()) {
      ChangeRepeated(message, field, depth);
    } else if (nested) {
      if (depth < 12) Change(reflection->MutableMessage(message, field), depth + 1);
    } else {
      SetValue(message, field);
    }
  }

 private:
  int Below(int n) { return static_cast<int>(random_() % static_cast<uint32_t>(n)); }
  template <class T>
  T Number() {
    switch (Below(7)) {
      case 0: return 0;
      case 1: return 1;
      case 2: return static_cast<T>(Below(70));
      case 3: return static_cast<T>(1 << Below(20));
      case 4: return std::numeric_limits<T>::max();
      case 5: return std::numeric_limits<T>::lowest();
      default: return static_cast<T>(random_());
    }
  }
  double Real() {
    switch (Below(8)) {
      case 0: return std::numeric_limits<double>::infinity();
      case 1: return std::numeric_limits<double>::quiet_NaN();
      case 2: return 1e-300;
      case 3: return 1e300;
      case 4: return -Below(100);
      case 5: return Below(1000) * 1e-3;
      default: return Below(4096);
    }
  }
  std::string Text(std::string now) {
    static constexpr const char* kKnown[] = {"",          "*",       "name",    "labels",
                                             "devices/0", "scans/1", "jobs/1",  "volumes/1",
                                             "buffers/1", "x",       "a.b-c_1", "\xC3\xA9"};
    if (Below(2) == 0) return kKnown[Below(static_cast<int>(std::size(kKnown)))];
    const size_t size = now.size();
    now.resize(size + 8);
    now.resize(LLVMFuzzerMutate(reinterpret_cast<uint8_t*>(now.data()), size, now.size()));
    return now;
  }
  void ChangeRepeated(Message* message, const FieldDescriptor* field, int depth) {
    const auto* reflection = message->GetReflection();
    const int count = reflection->FieldSize(*message, field);
    const bool nested = field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE;
    if (count > 0 && Below(4) == 0) return reflection->RemoveLast(message, field);
    if (count > 1 && Below(6) == 0) return reflection->SwapElements(message, field, 0, count - 1);
    if (nested && count > 0 && Below(2) == 0) {
      if (depth < 12)
        Change(reflection->MutableRepeatedMessage(message, field, Below(count)), depth + 1);
    } else if (nested) {
      if (depth < 12) Change(reflection->AddMessage(message, field), depth + 1);
    } else {
      for (int added = Below(4); added >= 0; --added) AddValue(message, field);
    }
  }
  int EnumOf(const FieldDescriptor* field) {
    return Below(6) == 0
               ? Number<int32_t>()
               : field->enum_type()->value(Below(field->enum_type()->value_count()))->number();
  }
  void SetValue(Message* m, const FieldDescriptor* f) {
    const auto* r = m->GetReflection();
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return r->SetInt32(m, f, Number<int32_t>());
      case FieldDescriptor::CPPTYPE_INT64: return r->SetInt64(m, f, Number<int64_t>());
      case FieldDescriptor::CPPTYPE_UINT32: return r->SetUInt32(m, f, Number<uint32_t>());
      case FieldDescriptor::CPPTYPE_UINT64: return r->SetUInt64(m, f, Number<uint64_t>());
      case FieldDescriptor::CPPTYPE_DOUBLE: return r->SetDouble(m, f, Real());
      case FieldDescriptor::CPPTYPE_FLOAT: return r->SetFloat(m, f, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_BOOL: return r->SetBool(m, f, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM: return r->SetEnumValue(m, f, EnumOf(f));
      case FieldDescriptor::CPPTYPE_STRING: return r->SetString(m, f, Text(r->GetString(*m, f)));
      case FieldDescriptor::CPPTYPE_MESSAGE: return;
    }
  }
  void AddValue(Message* m, const FieldDescriptor* f) {
    const auto* r = m->GetReflection();
    switch (f->cpp_type()) {
      case FieldDescriptor::CPPTYPE_INT32: return r->AddInt32(m, f, Number<int32_t>());
      case FieldDescriptor::CPPTYPE_INT64: return r->AddInt64(m, f, Number<int64_t>());
      case FieldDescriptor::CPPTYPE_UINT32: return r->AddUInt32(m, f, Number<uint32_t>());
      case FieldDescriptor::CPPTYPE_UINT64: return r->AddUInt64(m, f, Number<uint64_t>());
      case FieldDescriptor::CPPTYPE_DOUBLE: return r->AddDouble(m, f, Real());
      case FieldDescriptor::CPPTYPE_FLOAT: return r->AddFloat(m, f, static_cast<float>(Real()));
      case FieldDescriptor::CPPTYPE_BOOL: return r->AddBool(m, f, Below(2) == 0);
      case FieldDescriptor::CPPTYPE_ENUM: return r->AddEnumValue(m, f, EnumOf(f));
      case FieldDescriptor::CPPTYPE_STRING: return r->AddString(m, f, Text(""));
      case FieldDescriptor::CPPTYPE_MESSAGE: return;
    }
  }

  std::minstd_rand random_;
};

}  // namespace
}  // namespace octavo::fuzz

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t most, unsigned seed) {
  using namespace octavo::fuzz;  // NOLINT: the whole of this function is about it
  Mutator mutator(seed);
  Input input(data, size);
  const auto& now = RequestOf(input.Number<uint16_t>());
  const absl::string_view bytes = input.Rest();
  std::unique_ptr<google::protobuf::Message> message(now.New());
  if (seed % 2 == 0 || !message->ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
    return LLVMFuzzerMutate(data, size, most);
  const auto& chosen = mutator.Choose(now);
  if (&chosen != &now) message.reset(chosen.New());
  for (unsigned i = 0; i <= seed / 2 % 3; ++i) mutator.Change(message.get());
  const uint16_t number = NumberOfRequest(message->GetDescriptor()->name());
  if (most < sizeof number || message->ByteSizeLong() > most - sizeof number)
    return LLVMFuzzerMutate(data, size, most);
  std::memcpy(data, &number, sizeof number);
  message->SerializeToArray(data + sizeof number, static_cast<int>(message->ByteSizeLong()));
  return sizeof number + message->ByteSizeLong();
}
