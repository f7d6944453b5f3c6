SELECT
  `t0`.`sex` AS `k0`,
  CASE
    WHEN CAST(`t0`.`age` AS DOUBLE) IS NULL OR ISNAN(CAST(`t0`.`age` AS DOUBLE))
    THEN CAST(NULL AS DOUBLE)
    WHEN CAST(`t0`.`age` AS DOUBLE) < 30.0
    THEN 29.999999999999996
    WHEN CAST(`t0`.`age` AS DOUBLE) < 50.0
    THEN 30.0
    ELSE 50.0
  END AS `k1`,
  CASE
    WHEN IF(ISNAN(`t0`.`income`), CAST(NULL AS DOUBLE), `t0`.`income`) IS NULL
    OR ISNAN(IF(ISNAN(`t0`.`income`), CAST(NULL AS DOUBLE), `t0`.`income`))
    THEN CAST(NULL AS DOUBLE)
    WHEN IF(ISNAN(`t0`.`income`), CAST(NULL AS DOUBLE), `t0`.`income`) < 1000.0
    THEN 999.9999999999999
    ELSE 1000.0
  END AS `k2`,
  IF(
    IF(
      CAST(FLOOR((
        IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
      ) / 0.001) AS BIGINT) IS NULL,
      CAST(FLOOR((
        IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
      ) / 0.001) AS BIGINT),
      LEAST(
        1000,
        CAST(FLOOR((
          IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
        ) / 0.001) AS BIGINT)
      )
    ) IS NULL,
    IF(
      CAST(FLOOR((
        IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
      ) / 0.001) AS BIGINT) IS NULL,
      CAST(FLOOR((
        IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
      ) / 0.001) AS BIGINT),
      LEAST(
        1000,
        CAST(FLOOR((
          IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
        ) / 0.001) AS BIGINT)
      )
    ),
    GREATEST(
      0,
      IF(
        CAST(FLOOR((
          IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
        ) / 0.001) AS BIGINT) IS NULL,
        CAST(FLOOR((
          IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
        ) / 0.001) AS BIGINT),
        LEAST(
          1000,
          CAST(FLOOR((
            IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) - 0.0
          ) / 0.001) AS BIGINT)
        )
      )
    )
  ) AS `s3`,
  CAST(IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) >= 0.4999995 AS BIGINT) AS `t0_3`,
  IF(
    (
      IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) >= 0.4999995
    )
    AND (
      IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`) <= 0.5000005
    ),
    IF(ISNAN(`t0`.`score`), CAST(NULL AS DOUBLE), `t0`.`score`),
    CAST(NULL AS DOUBLE)
  ) AS `u0_3`,
  (
    (
      (
        (
          (
            (
              (
                (
                  (
                    377436006 * (
                      (
                        (
                          `t0`.`team` % 2147483647
                        ) + 2147483647
                      ) % 2147483647
                    )
                  ) + 35438376
                ) % 2147483647
              ) * (
                (
                  (
                    `t0`.`team` % 2147483647
                  ) + 2147483647
                ) % 2147483647
              )
            ) + 1781346422
          ) % 2147483647
        ) * (
          (
            (
              `t0`.`team` % 2147483647
            ) + 2147483647
          ) % 2147483647
        )
      ) + 1522678995
    ) % 2147483647
  ) % 1024 AS `k4`,
  `t0`.`a"; DROP TABLE people; --``'[x]` AS `k5`,
  AVG(`t0`.`score`) AS `m3`,
  MIN(`t0`.`score`) AS `l3`,
  MAX(`t0`.`score`) AS `h3`,
  COUNT(*) AS `n`
FROM `fairkit_rows` AS `t0`
GROUP BY
  1,
  2,
  3,
  4,
  5,
  6,
  7,
  8
LIMIT 2097153
