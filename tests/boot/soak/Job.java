// SPDX-License-Identifier: GPL-2.0-or-later
// The compiler compiles this file in the guest, then hash maps, threads, doubles and sorting until they are hot.
import java.util.*;

public class Job {
  static int fib(int n) {
    return n < 2 ? n : fib(n - 1) + fib(n - 2);
  }

  public static void main(String[] x) throws Exception {
    Map<String, Integer> m = new HashMap<>();
    long h = 0;
    for (int i = 0; i < 20; i++) {
      for (int k = 0; k < 20000; k++) m.merge("k" + (k * 7919 % 5003), k ^ i, Integer::sum);
      h = h * 31 + m.size() + fib(20);
    }
    Thread[] threads = new Thread[4];
    long[] r = new long[4];
    for (int j = 0; j < 4; j++) {
      final int n = j;
      threads[j] = new Thread(() -> {
        long v = n;
        for (int i = 0; i < 3000000; i++) v = v * 6364136223846793005L + 1442695040888963407L;
        r[n] = v;
      });
      threads[j].start();
    }
    for (Thread t : threads) t.join();
    double d = 0;
    for (int i = 1; i < 1000000; i++) d += StrictMath.sin(i) / i;
    List<Integer> l = new ArrayList<>();
    Random random = new Random(5);
    for (int i = 0; i < 100000; i++) l.add(random.nextInt());
    Collections.sort(l);
    System.out.println("RESULT java " + h + " " + m.hashCode() + " " + Arrays.hashCode(r) + " " + d + " " + l.hashCode());
  }
}
