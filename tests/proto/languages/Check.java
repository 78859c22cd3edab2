import java.lang.reflect.Method;
import java.nio.file.Files;
import java.nio.file.Path;
import java.util.ArrayList;
import java.util.List;

/** Loads the generated classes and looks for each name of the list (languages_test.py, Java). */
public class Check {
  public static void main(String[] arguments) throws Exception {
    List<String> problems = new ArrayList<>();
    for (String line : Files.readAllLines(Path.of(arguments[0]))) {
      try {
        String problem = problemOf(line.split(" "));
        if (problem != null) problems.add(line + ": " + problem);
      } catch (ReflectiveOperationException | LinkageError error) {
        problems.add(line + ": " + error);
      }
    }
    problems.forEach(System.out::println);
    System.exit(problems.isEmpty() ? 0 : 1);
  }

  private static String problemOf(String[] row) throws ReflectiveOperationException {
    Class<?> found = Class.forName(row[1]);
    switch (row[0]) {
      case "file": {
        Object descriptor = found.getMethod("getDescriptor").invoke(null);
        if (!(descriptor instanceof com.google.protobuf.Descriptors.FileDescriptor)) return "is no file's class";
        String name = ((com.google.protobuf.Descriptors.FileDescriptor) descriptor).getName();
        return name.equals(row[2]) ? null : "is of " + name;
      }
      case "message": {
        Object descriptor = found.getMethod("getDescriptor").invoke(null);
        String name = ((com.google.protobuf.Descriptors.Descriptor) descriptor).getFullName();
        found.getMethod("newBuilder");
        return name.equals(row[2]) ? null : "is " + name;
      }
      case "getter":
        return found.getMethod(row[2]).getDeclaringClass() == found ? null : "is inherited";
      case "value": {
        Object value = found.getField(row[2]).get(null);
        int number = ((com.google.protobuf.ProtocolMessageEnum) value).getNumber();
        return number == Integer.parseInt(row[3]) ? null : "is " + number;
      }
      case "method": {
        Class<?> side = Class.forName(row[1] + "$" + row[2]);
        for (Method method : side.getDeclaredMethods()) {
          if (method.getName().equals(row[3])) return null;
        }
        return "is not there";
      }
      default:
        return "unknown row";
    }
  }
}
