"""What a change of the contract takes away from programs that were built for the contract before: buf's FILE category, as far as
the wire and generated code go. Works on descriptor sets."""

from google.protobuf import descriptor_pb2

_TYPE = descriptor_pb2.FieldDescriptorProto.Type.Name


def _elements(files):
    """Every message, enum and service of the set by its full name."""
    messages, enums, services = {}, {}, {}

    def message(one, scope):
        name = f"{scope}.{one.name}"
        messages[name] = one
        for nested in one.nested_type:
            message(nested, name)
        for enum in one.enum_type:
            enums[f"{name}.{enum.name}"] = enum

    for file in files:
        for one in file.message_type:
            message(one, file.package)
        for enum in file.enum_type:
            enums[f"{file.package}.{enum.name}"] = enum
        for service in file.service:
            services[f"{file.package}.{service.name}"] = service
    return messages, enums, services


def _reserved(message, number, name):
    return any(r.start <= number < r.end for r in message.reserved_range) and name in message.reserved_name


def breaking(before, after):
    """Sentences, one for each thing that programs of `before` would miss in `after`; both are lists of FileDescriptorProto."""
    found = []
    old_messages, old_enums, old_services = _elements(before)
    messages, enums, services = _elements(after)
    for name, old in sorted(old_messages.items()):
        if name not in messages:
            found.append(f"message {name} is gone")
            continue
        found += _fields(name, old, messages[name])
    for name, old in sorted(old_enums.items()):
        if name not in enums:
            found.append(f"enum {name} is gone")
            continue
        now = {value.number: value.name for value in enums[name].value}
        for value in old.value:
            if now.get(value.number) != value.name:
                found.append(f"value {value.name} = {value.number} of {name} is now {now.get(value.number, 'gone')}")
    for name, old in sorted(old_services.items()):
        methods = {method.name: method for method in services[name].method} if name in services else {}
        if name not in services:
            found.append(f"service {name} is gone")
        for method in old.method:
            one = methods.get(method.name)
            if one is None:
                found.append(f"rpc {name}.{method.name} is gone")
            elif (one.input_type, one.output_type, one.client_streaming, one.server_streaming) != (
                    method.input_type, method.output_type, method.client_streaming, method.server_streaming):
                found.append(f"rpc {name}.{method.name} takes or returns another message than before")
    return found


def _fields(name, old, new):
    now = {field.number: field for field in new.field}
    for field in old.field:
        one = now.get(field.number)
        if one is None:
            if not _reserved(new, field.number, field.name):
                yield f"field {name}.{field.name} = {field.number} is gone, and its number and name are not reserved"
            continue
        if one.name != field.name:
            yield f"field {name}.{field.name} = {field.number} is now called {one.name}"
        if (one.type, one.type_name, one.label) != (field.type, field.type_name, field.label):
            yield f"field {name}.{field.name} has another type: {_TYPE(field.type)} {field.type_name} before, {_TYPE(one.type)} {one.type_name} now"
        in_oneof = [f.HasField("oneof_index") and not f.proto3_optional for f in (field, one)]
        if in_oneof[0] != in_oneof[1]:
            yield f"field {name}.{field.name} has moved into or out of a oneof"
        if field.proto3_optional != one.proto3_optional:
            yield f"field {name}.{field.name} has gained or lost `optional`"
