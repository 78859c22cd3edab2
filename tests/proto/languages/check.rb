# Loads the generated code and looks for each name of the list (languages_test.py, Ruby).
require "json"

wanted = JSON.parse(File.read(ARGV[0]))
problems = []
wanted["files"].each { |file| require file }
wanted["messages"].each do |constant, full_name, fields|
  begin
    message = Object.const_get(constant)
    problems << "#{constant} is #{message.descriptor.name}" unless message.descriptor.name == full_name
    one = message.new
    fields.each do |field|
      # A method that every object has would answer instead of the field.
      problems << "#{constant}.#{field} is a method of every object" if one.public_methods.include?(field.to_sym)
      begin
        one.public_send(field)
      rescue StandardError => error
        problems << "#{constant}.#{field}: #{error.message}"
      end
    end
  rescue NameError => error
    problems << error.message
  end
end
wanted["enums"].each do |constant, values|
  values.each do |name, number|
    begin
      problems << "#{constant}::#{name} is not #{number}" unless Object.const_get(constant).const_get(name) == number
    rescue NameError => error
      problems << error.message
    end
  end
end
wanted["services"].each do |constant, methods|
  begin
    service = Object.const_get(constant)
    own = service::Stub.public_instance_methods - GRPC::ClientStub.public_instance_methods
    methods.each do |name, call|
      problems << "#{constant} has no #{name}" unless service::Service.rpc_descs.key?(name.to_sym)
      problems << "#{constant}::Stub has no #{call}" unless own.include?(call.to_sym)
    end
  rescue NameError => error
    problems << error.message
  end
end
puts problems
exit(problems.empty? ? 0 : 1)
