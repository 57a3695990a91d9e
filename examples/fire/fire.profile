# Measured by 'headwater profile'; takes the place of what was declared. Work is for a record at speed 1.
profile: fire
fingerprint: d8833233c7c2d37c50db75347c9e4635a2155b4e28193e7d51d2751f69aab021
repeat: 3
operators:
  tree_source: {size: 30.11 kB, work: 0 s, spread: 17.5 us, records: 4000}
  tree_split: {rate_factor: 1, size_factor: 0.9978, work: 0 s, spread: 40.01 us, records: 4000}
  tree_temp: {rate_factor: 0.4975, size_factor: 0.0008304, work: 9.772E-9 ns, spread: 20.01 us, records: 4000}
  tree_image: {rate_factor: 1, size_factor: 0.00083, work: 756.7 us, spread: 275.2 us, records: 1600}
  tree_result: {rate_factor: 0.1062, size_factor: 0.9998, work: 0 s, spread: 25 ns, records: 3000000}
  location_source: {size: 499.5 kB, work: 0 s, spread: 406.9 us, records: 640}
  location_split: {rate_factor: 1, size_factor: 0.9999, work: 176 us, spread: 347 us, records: 1024}
  location_temp: {rate_factor: 0.5, size_factor: 0.00005791, work: 39.1 us, spread: 351.9 us, records: 1024}
  location_image: {rate_factor: 1, size_factor: 0.00005788, work: 6.667 ms, spread: 784.3 us, records: 256}
  location_result: {rate_factor: 0.1016, size_factor: 1.003, work: 3.227 ns, spread: 56.47 ns, records: 3099008}
  connect: {rate_factor: 1, size_factor: 1, work: 35.5 ns, spread: 40.34 ns, records: 3098904}
  temp_monitor: {rate_factor: 1, size_factor: 2.746, work: 545.5 ns, spread: 125.1 ns, records: 1998170}
  alert_monitor: {rate_factor: 1, size_factor: 2.961, work: 633.6 ns, spread: 233.4 ns, records: 899640}
notes:
  - "operator 'tree_source' costs less than can be told from noise: at most 17.5 us for a record."
  - "operator 'location_source' costs less than can be told from noise: at most 406.9 us for a record."
  - "operator 'tree_split' costs less than can be told from noise: at most 40.01 us for a record."
  - "operator 'location_split' costs less than can be told from noise: at most 523 us for a record."
  - "operator 'tree_temp' costs less than can be told from noise: at most 20.01 us for a record."
  - "operator 'location_temp' costs less than can be told from noise: at most 391 us for a record."
  - "operator 'tree_result' costs less than can be told from noise: at most 25 ns for a record."
  - "operator 'location_result' costs less than can be told from noise: at most 59.7 ns for a record."
  - "operator 'connect' costs less than can be told from noise: at most 75.83 ns for a record."
  - "other programs used up to 20% of this machine's processors meanwhile, which makes work seem more than it is. Measure again when it is quiet."
