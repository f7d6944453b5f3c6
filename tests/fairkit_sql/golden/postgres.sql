SELECT
  "t0"."sex" AS "k0",
  CASE
    WHEN CAST("t0"."age" AS DOUBLE PRECISION) IS NULL
    THEN CAST(NULL AS DOUBLE PRECISION)
    WHEN CAST("t0"."age" AS DOUBLE PRECISION) < 30.0
    THEN 29.999999999999996
    WHEN CAST("t0"."age" AS DOUBLE PRECISION) < 50.0
    THEN 30.0
    ELSE 50.0
  END AS "k1",
  CASE
    WHEN CASE
      WHEN "t0"."income" = CAST('NaN' AS DOUBLE PRECISION)
      THEN CAST(NULL AS DOUBLE PRECISION)
      ELSE "t0"."income"
    END IS NULL
    THEN CAST(NULL AS DOUBLE PRECISION)
    WHEN CASE
      WHEN "t0"."income" = CAST('NaN' AS DOUBLE PRECISION)
      THEN CAST(NULL AS DOUBLE PRECISION)
      ELSE "t0"."income"
    END < 1000.0
    THEN 999.9999999999999
    ELSE 1000.0
  END AS "k2",
  CASE
    WHEN CASE
      WHEN CAST(FLOOR(
        CAST((
          CASE
            WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
            THEN CAST(NULL AS DOUBLE PRECISION)
            ELSE "t0"."score"
          END - 0.0
        ) AS DOUBLE PRECISION) / 0.001
      ) AS BIGINT) IS NULL
      THEN CAST(FLOOR(
        CAST((
          CASE
            WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
            THEN CAST(NULL AS DOUBLE PRECISION)
            ELSE "t0"."score"
          END - 0.0
        ) AS DOUBLE PRECISION) / 0.001
      ) AS BIGINT)
      ELSE LEAST(
        1000,
        CAST(FLOOR(
          CAST((
            CASE
              WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
              THEN CAST(NULL AS DOUBLE PRECISION)
              ELSE "t0"."score"
            END - 0.0
          ) AS DOUBLE PRECISION) / 0.001
        ) AS BIGINT)
      )
    END IS NULL
    THEN CASE
      WHEN CAST(FLOOR(
        CAST((
          CASE
            WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
            THEN CAST(NULL AS DOUBLE PRECISION)
            ELSE "t0"."score"
          END - 0.0
        ) AS DOUBLE PRECISION) / 0.001
      ) AS BIGINT) IS NULL
      THEN CAST(FLOOR(
        CAST((
          CASE
            WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
            THEN CAST(NULL AS DOUBLE PRECISION)
            ELSE "t0"."score"
          END - 0.0
        ) AS DOUBLE PRECISION) / 0.001
      ) AS BIGINT)
      ELSE LEAST(
        1000,
        CAST(FLOOR(
          CAST((
            CASE
              WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
              THEN CAST(NULL AS DOUBLE PRECISION)
              ELSE "t0"."score"
            END - 0.0
          ) AS DOUBLE PRECISION) / 0.001
        ) AS BIGINT)
      )
    END
    ELSE GREATEST(
      0,
      CASE
        WHEN CAST(FLOOR(
          CAST((
            CASE
              WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
              THEN CAST(NULL AS DOUBLE PRECISION)
              ELSE "t0"."score"
            END - 0.0
          ) AS DOUBLE PRECISION) / 0.001
        ) AS BIGINT) IS NULL
        THEN CAST(FLOOR(
          CAST((
            CASE
              WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
              THEN CAST(NULL AS DOUBLE PRECISION)
              ELSE "t0"."score"
            END - 0.0
          ) AS DOUBLE PRECISION) / 0.001
        ) AS BIGINT)
        ELSE LEAST(
          1000,
          CAST(FLOOR(
            CAST((
              CASE
                WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
                THEN CAST(NULL AS DOUBLE PRECISION)
                ELSE "t0"."score"
              END - 0.0
            ) AS DOUBLE PRECISION) / 0.001
          ) AS BIGINT)
        )
      END
    )
  END AS "s3",
  CAST(CASE
    WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
    THEN CAST(NULL AS DOUBLE PRECISION)
    ELSE "t0"."score"
  END >= 0.4999995 AS BIGINT) AS "t0_3",
  CASE
    WHEN (
      CASE
        WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
        THEN CAST(NULL AS DOUBLE PRECISION)
        ELSE "t0"."score"
      END >= 0.4999995
    )
    AND (
      CASE
        WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
        THEN CAST(NULL AS DOUBLE PRECISION)
        ELSE "t0"."score"
      END <= 0.5000005
    )
    THEN CASE
      WHEN "t0"."score" = CAST('NaN' AS DOUBLE PRECISION)
      THEN CAST(NULL AS DOUBLE PRECISION)
      ELSE "t0"."score"
    END
    ELSE CAST(NULL AS DOUBLE PRECISION)
  END AS "u0_3",
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
  ) % 2147483647 % 1024 AS "k4",
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
