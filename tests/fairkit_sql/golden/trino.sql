SELECT
  "t0"."sex" AS "k0",
  CASE
    WHEN CAST("t0"."age" AS DOUBLE) IS NULL
    THEN CAST(NULL AS DOUBLE)
    WHEN CAST("t0"."age" AS DOUBLE) < CAST(30.0 AS DOUBLE)
    THEN CAST(29.999999999999996 AS DOUBLE)
    WHEN CAST("t0"."age" AS DOUBLE) < CAST(50.0 AS DOUBLE)
    THEN CAST(30.0 AS DOUBLE)
    ELSE CAST(50.0 AS DOUBLE)
  END AS "k1",
  CASE
    WHEN IF(IS_NAN("t0"."income"), CAST(NULL AS DOUBLE), "t0"."income") IS NULL
    THEN CAST(NULL AS DOUBLE)
    WHEN IF(IS_NAN("t0"."income"), CAST(NULL AS DOUBLE), "t0"."income") < CAST(1000.0 AS DOUBLE)
    THEN CAST(999.9999999999999 AS DOUBLE)
    ELSE CAST(1000.0 AS DOUBLE)
  END AS "k2",
  IF(
    IF(
      CAST(FLOOR(
        (
          IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
        ) / CAST(0.001 AS DOUBLE)
      ) AS BIGINT) IS NULL,
      CAST(FLOOR(
        (
          IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
        ) / CAST(0.001 AS DOUBLE)
      ) AS BIGINT),
      LEAST(
        1000,
        CAST(FLOOR(
          (
            IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
          ) / CAST(0.001 AS DOUBLE)
        ) AS BIGINT)
      )
    ) IS NULL,
    IF(
      CAST(FLOOR(
        (
          IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
        ) / CAST(0.001 AS DOUBLE)
      ) AS BIGINT) IS NULL,
      CAST(FLOOR(
        (
          IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
        ) / CAST(0.001 AS DOUBLE)
      ) AS BIGINT),
      LEAST(
        1000,
        CAST(FLOOR(
          (
            IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
          ) / CAST(0.001 AS DOUBLE)
        ) AS BIGINT)
      )
    ),
    GREATEST(
      0,
      IF(
        CAST(FLOOR(
          (
            IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
          ) / CAST(0.001 AS DOUBLE)
        ) AS BIGINT) IS NULL,
        CAST(FLOOR(
          (
            IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
          ) / CAST(0.001 AS DOUBLE)
        ) AS BIGINT),
        LEAST(
          1000,
          CAST(FLOOR(
            (
              IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") - CAST(0.0 AS DOUBLE)
            ) / CAST(0.001 AS DOUBLE)
          ) AS BIGINT)
        )
      )
    )
  ) AS "s3",
  CAST(IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") >= CAST(0.4999995 AS DOUBLE) AS BIGINT) AS "t0_3",
  IF(
    (
      IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") >= CAST(0.4999995 AS DOUBLE)
    )
    AND (
      IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score") <= CAST(0.5000005 AS DOUBLE)
    ),
    IF(IS_NAN("t0"."score"), CAST(NULL AS DOUBLE), "t0"."score"),
    CAST(NULL AS DOUBLE)
  ) AS "u0_3",
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
                          "t0"."team" % 2147483647
                        ) + 2147483647
                      ) % 2147483647
                    )
                  ) + 35438376
                ) % 2147483647
              ) * (
                (
                  (
                    "t0"."team" % 2147483647
                  ) + 2147483647
                ) % 2147483647
              )
            ) + 1781346422
          ) % 2147483647
        ) * (
          (
            (
              "t0"."team" % 2147483647
            ) + 2147483647
          ) % 2147483647
        )
      ) + 1522678995
    ) % 2147483647
  ) % 1024 AS "k4",
  "t0"."a""; DROP TABLE people; --`'[x]" AS "k5",
  AVG("t0"."score") AS "m3",
  MIN("t0"."score") AS "l3",
  MAX("t0"."score") AS "h3",
  COUNT(*) AS "n"
FROM "fairkit_rows" AS "t0"
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
