SELECT
  `t0`.`sex` AS `k0`,
  CASE
    WHEN CAST(`t0`.`age` AS FLOAT64) IS NULL
    THEN CAST(NULL AS FLOAT64)
    WHEN CAST(`t0`.`age` AS FLOAT64) < 30.0
    THEN 29.999999999999996
    WHEN CAST(`t0`.`age` AS FLOAT64) < 50.0
    THEN 30.0
    ELSE 50.0
  END AS `k1`,
  CASE
    WHEN IF(IS_NAN(`t0`.`income`), CAST(NULL AS FLOAT64), `t0`.`income`) IS NULL
    THEN CAST(NULL AS FLOAT64)
    WHEN IF(IS_NAN(`t0`.`income`), CAST(NULL AS FLOAT64), `t0`.`income`) < 1000.0
    THEN 999.9999999999999
    ELSE 1000.0
  END AS `k2`,
  IF(
    IF(
      CAST(FLOOR(
        ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
      ) AS INT64) IS NULL,
      CAST(FLOOR(
        ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
      ) AS INT64),
      LEAST(
        1000,
        CAST(FLOOR(
          ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
        ) AS INT64)
      )
    ) IS NULL,
    IF(
      CAST(FLOOR(
        ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
      ) AS INT64) IS NULL,
      CAST(FLOOR(
        ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
      ) AS INT64),
      LEAST(
        1000,
        CAST(FLOOR(
          ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
        ) AS INT64)
      )
    ),
    GREATEST(
      0,
      IF(
        CAST(FLOOR(
          ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
        ) AS INT64) IS NULL,
        CAST(FLOOR(
          ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
        ) AS INT64),
        LEAST(
          1000,
          CAST(FLOOR(
            ieee_divide(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) - 0.0, 0.001)
          ) AS INT64)
        )
      )
    )
  ) AS `s3`,
  CAST(IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) >= 0.4999995 AS INT64) AS `t0_3`,
  IF(
    (
      IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) >= 0.4999995
    )
    AND (
      IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`) <= 0.5000005
    ),
    IF(IS_NAN(`t0`.`score`), CAST(NULL AS FLOAT64), `t0`.`score`),
    CAST(NULL AS FLOAT64)
  ) AS `u0_3`,
  MOD(
    MOD(
      (
        (
          MOD(
            (
              (
                MOD(
                  (
                    377436006 * (
                      MOD((
                        MOD(`t0`.`team`, 2147483647)
                      ) + 2147483647, 2147483647)
                    )
                  ) + 35438376,
                  2147483647
                )
              ) * (
                MOD((
                  MOD(`t0`.`team`, 2147483647)
                ) + 2147483647, 2147483647)
              )
            ) + 1781346422,
            2147483647
          )
        ) * (
          MOD((
            MOD(`t0`.`team`, 2147483647)
          ) + 2147483647, 2147483647)
        )
      ) + 1522678995,
      2147483647
    ),
    1024
  ) AS `k4`,
  `t0`.`a_DROP TABLE people_--_'_x` AS `k5`,
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
